//! Networks, written as CIDR or as one address.

use std::net::IpAddr;

use ipnet::IpNet;

use super::raw::Value;

/// One network. Bits beyond the prefix are dropped with a warning: `10.1.2.3/8` may be a slip.
pub(super) fn one(value: &Value<'_>, expected: &str) -> Option<IpNet> {
    let network = value.parsed(expected, |text| {
        text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
    })?;
    if network != network.trunc() {
        value.warn(format_args!("means the whole network {}", network.trunc()));
    }
    Some(network.trunc())
}

/// A list of networks.
pub(super) fn list(value: &Value<'_>) -> Option<Vec<IpNet>> {
    let elements = value.list()?;
    let expected = "a network such as \"10.0.0.0/8\" or an address";
    Some(elements.iter().filter_map(|element| one(element, expected)).collect())
}
