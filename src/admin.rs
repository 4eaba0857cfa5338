//! The second listener: health, metrics, and who may administer.

mod settings;

pub use settings::{AdminToken, Role};
