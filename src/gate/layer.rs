//! The gate as a tower layer, for a service of one's own.

use std::sync::Arc;

use tower::Layer;

use super::{Gate, GateService};

/// Puts a [`Gate`] before a service. See [`GateService`].
#[derive(Clone, Debug)]
pub struct GateLayer {
    gate: Arc<Gate>,
}

impl GateLayer {
    /// A layer around `gate`.
    #[must_use]
    pub const fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = GateService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GateService::new(Arc::clone(&self.gate), inner)
    }
}
