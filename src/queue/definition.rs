//! A queue as declared in the configuration: its name or template, and its settings.

use super::name::{QueueName, QueueTemplate};
use super::settings::Settings;
use super::user::UserSource;

/// One declared queue, or one template for many.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    /// Its name, or how names are made.
    pub template: QueueTemplate,
    /// Its settings; every instance of a template starts with them.
    pub settings: Settings,
    /// The identity sources of this queue in order; `None` uses those of the whole gateway.
    pub identity: Option<Vec<UserSource>>,
    /// How many instances a template may have at once on this gateway.
    pub max_instances: usize,
    /// Hash of the declaration's text: the store uses it to see whether the file changed.
    pub text_hash: u64,
}

impl Definition {
    /// Default for `max_instances`: enough for a catalogue page, few enough that made-up names
    /// cannot fill a store.
    pub const DEFAULT_MAX_INSTANCES: usize = 1000;

    /// Whether `name` belongs to this definition.
    #[must_use]
    pub fn owns(&self, name: &QueueName) -> bool {
        self.template.matches(name)
    }
}
