//! The waiting room page: a [`View`](crate::queue::view::View) as HTML for people.
//!
//! One self-contained document without anything to load. It works without JavaScript by
//! refreshing; with JavaScript it asks for the rank alone and changes in place. It decides nothing:
//! whether somebody may go on is the server's answer to the next request.

mod render;
mod settings;
mod view;

pub use render::{Page, PageContext};
pub use settings::PageSettings;
