//! Which route a request takes: the most specific match wins, whatever the order of the file.
//!
//! Pure and strict: a target that back ends could read in two ways is matched in every way, and
//! anything that leaves doubt about a gated route is refused. Nothing here looks at a header, a
//! token or a store.

pub mod action;
mod host;
mod lookup;
mod parameter;
mod path;
mod reading;
pub mod return_target;
mod table;
mod target;

pub use action::{Cors, Gated, ParameterSource, WhenWaiting};
pub use host::HostPattern;
pub use path::{PathPattern, PatternError};
pub use table::{
    Bypass, COMPATIBILITY_PATHS, Matched, Route, RouteRequest, RouteTable, TableError,
};
pub use target::{CanonicalTarget, TargetError};
