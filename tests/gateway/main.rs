//! End-to-end stories: real sockets, port 0, a real upstream. One binary, so that pingora is
//! linked once; one file a theme.

mod proxying;
mod support;
