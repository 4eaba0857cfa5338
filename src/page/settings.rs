//! What can be set about the waiting room page.

/// The page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageSettings {
    /// The shop's name, shown as the title.
    pub title: String,
    /// A sentence under it; may be empty.
    pub message: String,
    /// Who may frame the page: sources of the CSP directive, e.g. `'none'` (default) or origins.
    pub frame_ancestors: Vec<String>,
}

impl Default for PageSettings {
    fn default() -> Self {
        Self {
            title: "You are in line".into(),
            message: String::new(),
            frame_ancestors: vec!["'none'".into()],
        }
    }
}
