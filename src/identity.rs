//! Who is calling: each source looks at the request, the configured order decides.

pub mod client_address;
pub mod cookies;
