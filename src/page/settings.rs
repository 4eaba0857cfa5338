//! What can be set about the waiting room page.

/// The page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageSettings {
    /// The shop's name, shown above the state of the line and in the title of the window.
    pub title: String,
    /// A sentence under it; may be empty.
    pub message: String,
    /// Who may frame the page: sources of the CSP directive, e.g. `'none'` (default) or origins.
    pub frame_ancestors: Vec<String>,
}

impl Default for PageSettings {
    fn default() -> Self {
        Self {
            title: "Waiting room".into(),
            message: String::new(),
            frame_ancestors: vec!["'none'".into()],
        }
    }
}
