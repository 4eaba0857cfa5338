//! Origins, written the way a browser sends them: `https://shop.example`, `http://localhost:3000`.

use super::raw::Value;

const EXPECTED: &str = "an origin such as \"https://shop.example\": scheme, host and port only";

/// A list of origins; an absent list is empty.
pub(super) fn list(value: &Value<'_>) -> Vec<String> {
    let elements = value.list().unwrap_or_default();
    elements.iter().filter_map(|element| element.parsed(EXPECTED, parse)).collect()
}

/// The origin in lower case without its scheme's own port. Never `*`: answers carry credentials.
pub(super) fn parse(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (scheme, authority) = text.split_once("://")?;
    let default_port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let authority = authority.strip_suffix(default_port).unwrap_or(authority);
    host_and_port(authority)?;
    Some(format!("{scheme}://{authority}"))
}

/// Host and port of `host[:port]`, the host a name or an address, IPv6 in brackets. The port is
/// never 0.
pub(super) fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let end = if text.starts_with('[') {
        let end = text.find(']')? + 1;
        text.get(1..end - 1)?.parse::<std::net::Ipv6Addr>().ok()?;
        end
    } else {
        let end = text.find(':').unwrap_or(text.len());
        is_host_name(&text[..end]).then_some(end)?
    };
    let (host, port) = text.split_at(end);
    if port.is_empty() {
        return Some((host, None));
    }
    let digits = port.strip_prefix(':')?;
    let sound = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    let port = sound.then(|| digits.parse().ok()).flatten()?;
    Some((host, Some(port)))
}

/// Whether `name` is a host name or an IPv4 address: labels of letters, digits, `-` and `_`.
pub(super) fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        assert_eq!(parse("HTTPS://Shop.Example:443").as_deref(), Some("https://shop.example"));
        assert_eq!(parse("http://[::1]:3000").as_deref(), Some("http://[::1]:3000"));
        for bad in [
            "*",
            "null",
            "shop.example",
            "ftp://shop.example",
            "https://",
            "https://shop.example/",
            "https://shop.example/path",
            "https://u:p@shop.example",
            "https://shop.example?x",
            "https://shop.example:0",
            "https://shop.example:99999",
            "https://[::1",
            "https://sho p.example",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
