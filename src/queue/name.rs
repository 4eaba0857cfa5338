//! Names of queues, and templates from which names are made per request.

use std::fmt;
use std::sync::Arc;

/// The name of one queue: `[a-z0-9][a-z0-9._-]{0,63}`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName {
    text: Arc<str>,
    /// Follows from the text; every token of the queue is asked for it.
    hint: u32,
}

impl QueueName {
    /// The longest name, bytes.
    pub const MAX_BYTES: usize = 64;

    /// A queue name, or `None` when `name` does not have the form above.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = name.bytes();
        let first = bytes.next()?;
        let sound = (first.is_ascii_lowercase() || first.is_ascii_digit())
            && name.len() <= Self::MAX_BYTES
            && bytes.all(|b| {
                b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-')
            });
        sound.then(|| {
            let [a, b, c, d, ..] = *blake3::hash(name.as_bytes()).as_bytes();
            Self { text: name.into(), hint: u32::from_be_bytes([a, b, c, d]) }
        })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Four bytes that hint at the queue inside a token. Only the MAC, which covers the full name,
    /// binds a token to its queue.
    #[must_use]
    pub const fn hint(&self) -> u32 {
        self.hint
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueName({self})")
    }
}

/// How the value of a template parameter is checked and brought into one spelling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParameterKind {
    /// A UUID in any spelling the `uuid` crate reads; used in lower case with hyphens.
    Uuid,
    /// A decimal number up to `u64::MAX`; used without leading zeros.
    Integer,
    /// `[a-z0-9][a-z0-9-]{0,39}`, used as it is.
    Slug,
}

impl ParameterKind {
    /// The one spelling of `value`, or `None` when it is not of this kind.
    #[must_use]
    pub fn canonical(self, value: &str) -> Option<String> {
        match self {
            Self::Uuid => uuid::Uuid::try_parse(value).ok().map(|id| id.hyphenated().to_string()),
            Self::Integer => {
                let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| value.parse::<u64>().ok()).flatten().map(|n| n.to_string())
            }
            Self::Slug => {
                let sound = (1..=40).contains(&value.len())
                    && !value.starts_with('-')
                    && value
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
                sound.then(|| value.to_owned())
            }
        }
    }
}

/// A queue name as written in the configuration: fixed (`flash-sale`) or with exactly one checked
/// parameter (`deal-{product_id}`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueueTemplate {
    /// One queue.
    Fixed(QueueName),
    /// One queue per value of the parameter.
    PerParameter {
        /// What stands before the parameter; never empty, so that templates cannot swallow names.
        prefix: String,
        /// The parameter's name, without braces.
        parameter: String,
        /// What stands after it.
        suffix: String,
        /// How its value is checked.
        kind: ParameterKind,
    },
}

impl QueueTemplate {
    /// The template as written, used as a metric label.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Fixed(name) => name.to_string(),
            Self::PerParameter { prefix, parameter, suffix, .. } => {
                format!("{prefix}{{{parameter}}}{suffix}")
            }
        }
    }

    /// The queue for `value` of the parameter; `None` when the value is not of the declared kind
    /// or the name would be too long. A fixed template ignores the value.
    #[must_use]
    pub fn instance(&self, value: Option<&str>) -> Option<QueueName> {
        match self {
            Self::Fixed(name) => Some(name.clone()),
            Self::PerParameter { prefix, suffix, kind, .. } => {
                let value = kind.canonical(value?)?;
                QueueName::new(&format!("{prefix}{value}{suffix}"))
            }
        }
    }

    /// Whether `name` is a queue this template makes. The value must be in its one spelling: a
    /// second spelling would be a second queue.
    #[must_use]
    pub fn matches(&self, name: &QueueName) -> bool {
        match self {
            Self::Fixed(own) => own == name,
            Self::PerParameter { prefix, suffix, kind, .. } => name
                .as_str()
                .strip_prefix(prefix.as_str())
                .and_then(|rest| rest.strip_suffix(suffix.as_str()))
                .is_some_and(|value| kind.canonical(value).as_deref() == Some(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        for good in ["a", "deal-1", "0.x_y-z", &"a".repeat(64)] {
            assert!(QueueName::new(good).is_some(), "{good}");
        }
        for bad in ["", "-a", "A", "a b", "a/b", "{a}", "é", &"a".repeat(65)] {
            assert!(QueueName::new(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn every_spelling_of_a_uuid_is_one_queue() {
        let template = QueueTemplate::PerParameter {
            prefix: "deal-".into(),
            parameter: "product_id".into(),
            suffix: String::new(),
            kind: ParameterKind::Uuid,
        };
        let name = template.instance(Some("018F2B6E-0000-7000-8000-00000000000A")).unwrap();
        assert_eq!(name.as_str(), "deal-018f2b6e-0000-7000-8000-00000000000a");
        assert_eq!(template.instance(Some("018f2b6e00007000800000000000000a")), Some(name.clone()));
        assert_eq!(template.instance(Some("not-a-uuid")), None);
        assert_eq!(template.instance(None), None);
        assert!(template.matches(&name));
        assert!(
            !template.matches(&QueueName::new("deal-018f2b6e00007000800000000000000a").unwrap())
        );
        assert_eq!(template.label(), "deal-{product_id}");
    }

    #[test]
    fn numbers_lose_leading_zeros_and_slugs_do_not_change() {
        assert_eq!(ParameterKind::Integer.canonical("007").as_deref(), Some("7"));
        assert_eq!(ParameterKind::Integer.canonical("-7"), None);
        assert_eq!(ParameterKind::Integer.canonical("99999999999999999999"), None);
        assert_eq!(ParameterKind::Slug.canonical("a-1").as_deref(), Some("a-1"));
        assert_eq!(ParameterKind::Slug.canonical("A"), None);
        assert_eq!(ParameterKind::Slug.canonical(""), None);
    }
}
