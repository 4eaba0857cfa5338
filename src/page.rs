//! The waiting room page.

mod settings;

pub use settings::PageSettings;
