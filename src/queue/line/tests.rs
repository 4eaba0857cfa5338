//! Stories and properties of one line.
