//! Where everything is put together and run.

pub mod listener;
pub mod shutdown;
