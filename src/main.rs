//! anteroom
fn main() {}
