//! `[[queue]]`: names, templates and settings of queues.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::identity::cookies::RESERVED_QUEUE_NAME;
use crate::queue::definition::Definition;
use crate::queue::settings::{
    Mode, OnDuplicate, OnStoreFailure, Rate, Renew, Settings, SettingsError,
};
use crate::queue::{ParameterKind, QueueName, QueueTemplate};

use super::identity;
use super::raw::{Table, Value, float};
use super::units;

/// Keys that hold spans: `10m` and `600s` are the same value.
const SPANS: [&str; 5] = ["active_ttl", "active_max", "claim_ttl", "waiting_ttl", "late_grace"];

/// A queue with the places that are compared with others later.
pub(super) struct Queue<'a> {
    /// The name as written, if it is a text.
    pub(super) written: Option<&'a str>,
    /// `None` when the name could not be read.
    pub(super) definition: Option<Definition>,
    /// The identity sources named here.
    pub(super) identity: identity::Sources<'a>,
    name: Value<'a>,
}

impl Queue<'_> {
    fn overlaps(&self, other: &Self) -> bool {
        let both = self.definition.as_ref().zip(other.definition.as_ref());
        both.is_some_and(|(a, b)| overlap(&a.template, &b.template))
    }
}

pub(super) fn read<'a>(root: &mut Table<'a>) -> Vec<Queue<'a>> {
    let mut queues: Vec<Queue<'a>> = Vec::new();
    for table in root.tables("queue") {
        let queue = read_one(table);
        if let Some(other) = queues.iter().find(|other| other.overlaps(&queue)) {
            let (name, line) = (queue.name.shown(), other.name.line());
            let found = if queue.written == other.written {
                format!("{name} a second time (first in line {line})")
            } else {
                format!(
                    "{name}, which can be the same name as {} in line {line}",
                    other.name.shown()
                )
            };
            queue.name.refuse(found, "names that belong to one queue only");
        }
        queues.push(queue);
    }
    queues
}

fn read_one(mut table: Table<'_>) -> Queue<'_> {
    let name = table.take("name");
    let parameters = table.take("parameters");
    let max_instances = table.take("max_instances");
    let identity = table.take("identity");
    let policy = table.take("policy");
    let settings = read_settings(&mut table);
    table.done();
    read_policy(&policy);

    let form = "a queue name, `[a-z0-9][a-z0-9._-]{0,63}`, with at most one `{parameter}` inside";
    let name = name.required(form);
    let written = name.text();
    let template = written.and_then(|text| {
        let template = read_template(text, &name, &parameters);
        if template.is_none() && !text.contains(['{', '}']) {
            name.wrong(form);
        }
        template
    });
    if let (Some(template), Some(reserved)) = (&template, QueueName::new(RESERVED_QUEUE_NAME))
        && template.matches(&reserved)
    {
        name.refuse(
            format_args!("{}, which can be the name {RESERVED_QUEUE_NAME:?}", name.shown()),
            "another name: cookies use this one",
        );
    }
    let mut instances = Definition::DEFAULT_MAX_INSTANCES;
    if matches!(template, Some(QueueTemplate::Fixed(_))) {
        parameters.useless("a `{parameter}` in the name");
        max_instances.useless("a `{parameter}` in the name");
    } else if let Some(most) = max_instances.count(1..=1_000_000) {
        instances = most;
    }
    let identity = identity::sources(&identity);
    let definition = template.map(|template| Definition {
        template,
        settings,
        identity: identity.list(),
        max_instances: instances,
        text_hash: table.entries().map(text_hash).unwrap_or_default(),
    });
    Queue { written, definition, identity, name }
}

/// Only one policy exists; the others are planned.
fn read_policy(value: &Value<'_>) {
    if ["lottery", "priority"].iter().any(|later| value.is_text(later)) {
        value.later();
    } else {
        value.choice(&[("fifo", ())]);
    }
}

/// The queue's name, or how names are made. Reports what is wrong with a template itself.
fn read_template(text: &str, name: &Value<'_>, parameters: &Value<'_>) -> Option<QueueTemplate> {
    let Some((prefix, rest)) = text.split_once('{') else {
        return QueueName::new(text).map(QueueTemplate::Fixed);
    };
    let parts = rest.split_once('}').filter(|(parameter, suffix)| {
        let letters = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        !parameter.is_empty()
            && !parameter.starts_with(|c: char| c.is_ascii_digit())
            && parameter.bytes().all(letters)
            && !suffix.contains(['{', '}'])
    });
    let Some((parameter, suffix)) = parts else {
        name.wrong("exactly one parameter such as `{product_id}`");
        return None;
    };
    // The parameter is at least one character from the alphabet of names.
    if prefix.is_empty() || QueueName::new(&format!("{prefix}0{suffix}")).is_none() {
        name.wrong("a parameter behind a fixed beginning, such as \"deal-{product_id}\"");
        return None;
    }
    let kind = read_kind(parameter, parameters)?;
    let longest = match kind {
        ParameterKind::Uuid => 36,
        ParameterKind::Integer => 20,
        ParameterKind::Slug => 40,
    };
    let length = prefix.len() + longest + suffix.len();
    if length > 64 {
        name.refuse(
            format_args!("{}, whose names can be {length} characters long", name.shown()),
            "names of at most 64 characters",
        );
        return None;
    }
    Some(QueueTemplate::PerParameter {
        prefix: prefix.into(),
        parameter: parameter.into(),
        suffix: suffix.into(),
        kind,
    })
}

fn read_kind(parameter: &str, parameters: &Value<'_>) -> Option<ParameterKind> {
    let parameters = parameters
        .clone()
        .required(format_args!("{{ {parameter} = \"uuid\" }}, or \"integer\" or \"slug\""));
    let mut kind = None;
    for (key, value) in parameters.is_set().then(|| parameters.table())?.free_entries() {
        if key == parameter {
            kind = value.choice(&[
                ("uuid", ParameterKind::Uuid),
                ("integer", ParameterKind::Integer),
                ("slug", ParameterKind::Slug),
            ]);
            kind?;
        } else {
            value.refuse(
                format_args!("a parameter that the name does not have"),
                format_args!("only `{parameter}`"),
            );
        }
    }
    if kind.is_none() {
        parameters.refuse(format_args!("no `{parameter}`"), "every parameter of the name");
    }
    kind
}

/// Whether both can make one name. When in doubt, yes: a name must belong to one queue.
fn overlap(a: &QueueTemplate, b: &QueueTemplate) -> bool {
    match (a, b) {
        (QueueTemplate::Fixed(name), other) | (other, QueueTemplate::Fixed(name)) => {
            other.matches(name)
        }
        (
            QueueTemplate::PerParameter { prefix, suffix, kind, .. },
            QueueTemplate::PerParameter {
                prefix: other_prefix,
                suffix: other_suffix,
                kind: other_kind,
                ..
            },
        ) => {
            let prefixes = prefix.starts_with(other_prefix.as_str())
                || other_prefix.starts_with(prefix.as_str());
            let suffixes =
                suffix.ends_with(other_suffix.as_str()) || other_suffix.ends_with(suffix.as_str());
            // UUIDs have one length, so different surroundings never meet.
            let fixed_length = *kind == ParameterKind::Uuid && *other_kind == ParameterKind::Uuid;
            let same = prefix == other_prefix && suffix == other_suffix;
            prefixes && suffixes && (same || !fixed_length)
        }
    }
}

fn read_settings(table: &mut Table<'_>) -> Settings {
    let capacity = table.take("capacity");
    let admit_per_second = table.take("admit_per_second");
    let admit_per_minute = table.take("admit_per_minute");
    let active_ttl = table.take("active_ttl");
    let active_max = table.take("active_max");
    let renew = table.take("renew");
    let claim_ttl = table.take("claim_ttl");
    let waiting_ttl = table.take("waiting_ttl");
    let late_grace = table.take("late_grace");
    let max_waiting = table.take("max_waiting");
    let opens_at = table.take("opens_at");
    let closes_at = table.take("closes_at");
    let mode = table.take("mode");
    let on_duplicate = table.take("on_duplicate");
    let on_store_failure = table.take("on_store_failure");

    let form = format!("a whole number from 0 to {}", Settings::MAX_CAPACITY);
    let capacity = capacity.required(form);
    let mut settings = Settings::new(capacity.integer(0..=Settings::MAX_CAPACITY).unwrap_or(1));
    if capacity.is_set() && settings.capacity == 0 {
        capacity.warn("a capacity of 0 admits nobody");
    }

    settings.rate = read_rate(&admit_per_second, &admit_per_minute);
    let mut sound = true;
    let mut span = |value: &Value<'_>, default: Duration| {
        let read = value.span();
        sound &= read.is_some() || !value.is_set();
        read.unwrap_or(default)
    };
    settings.active_ttl = span(&active_ttl, settings.active_ttl);
    // The defaults follow active_ttl, so that it can be set alone.
    settings.active_max = span(&active_max, settings.active_max.max(settings.active_ttl));
    settings.claim_ttl = span(&claim_ttl, settings.claim_ttl.min(settings.active_ttl));
    settings.waiting_ttl = span(&waiting_ttl, settings.waiting_ttl);
    settings.late_grace = span(&late_grace, settings.late_grace);
    settings.renew =
        renew.choice(&[("fixed", Renew::Fixed), ("sliding", Renew::Sliding)]).unwrap_or_default();
    if settings.renew == Renew::Fixed {
        active_max.useless("renew = \"sliding\"");
    }
    settings.max_waiting = max_waiting.integer(1..=100_000_000).unwrap_or(settings.max_waiting);
    settings.opens_at = opens_at.moment();
    settings.closes_at = closes_at.moment();
    settings.mode = read_mode(&mode);
    settings.on_duplicate = on_duplicate
        .choice(&[("same", OnDuplicate::Same), ("reject", OnDuplicate::Reject)])
        .unwrap_or_default();
    settings.on_store_failure = on_store_failure
        .choice(&[
            ("hold", OnStoreFailure::Hold),
            ("open", OnStoreFailure::Open),
            ("closed", OnStoreFailure::Closed),
        ])
        .unwrap_or_default();

    if sound {
        for error in settings.check() {
            let at = match error {
                SettingsError::Capacity => &capacity,
                SettingsError::ActiveTtl => &active_ttl,
                SettingsError::ActiveMax => &active_max,
                SettingsError::ClaimTtl | SettingsError::ClaimBeyondActive => &claim_ttl,
                SettingsError::WaitingTtl => &waiting_ttl,
                SettingsError::LateGrace => &late_grace,
                SettingsError::MaxWaiting => &max_waiting,
                SettingsError::Window => &closes_at,
            };
            report(at, error, &settings);
        }
        warn(&claim_ttl, &waiting_ttl, &settings);
    }
    settings
}

/// Names the rule that was broken, unless the broken key has a default and follows another one.
fn report(at: &Value<'_>, error: SettingsError, settings: &Settings) {
    let expected = match error {
        SettingsError::ClaimBeyondActive => {
            format!("at most active_ttl ({})", units::show_duration(settings.active_ttl))
        }
        SettingsError::ActiveMax => {
            format!("active_ttl ({}) to 24h", units::show_duration(settings.active_ttl))
        }
        SettingsError::ActiveTtl => "1s to 24h".into(),
        SettingsError::ClaimTtl => "at least 1s".into(),
        SettingsError::WaitingTtl => {
            "1m to 1h: a tab in the background speaks once a minute".into()
        }
        SettingsError::LateGrace => "at most 1h".into(),
        SettingsError::Window => "a moment after opens_at".into(),
        SettingsError::Capacity | SettingsError::MaxWaiting => error.to_string(),
    };
    // A default that does not fit follows from a key that has been reported itself.
    if at.is_set() {
        at.wrong(expected);
    }
}

fn warn(claim_ttl: &Value<'_>, waiting_ttl: &Value<'_>, settings: &Settings) {
    let second = Duration::from_secs(1);
    if (second..second * 10).contains(&settings.claim_ttl) {
        claim_ttl.warn(format_args!(
            "{} to come when called is short: waiting users must ask every {:.1} s",
            units::show_duration(settings.claim_ttl),
            settings.claim_ttl.as_secs_f64() * 0.45
        ));
    }
    if (second * 60..second * 120).contains(&settings.waiting_ttl) {
        waiting_ttl.warn(
            "a tab in the background speaks once a minute: under 2m one lost request costs the \
             place in line",
        );
    }
}

fn read_rate(per_second: &Value<'_>, per_minute: &Value<'_>) -> Rate {
    let second = per_second.number("a number from 0.001 to 1000000", Rate::per_second);
    let minute =
        per_minute.number("a number from 0.06 to 60000000", |users| Rate::per_second(users / 60.0));
    let unlimited = Rate::Unlimited;
    second.unwrap_or(unlimited).stricter(minute.unwrap_or(unlimited))
}

fn read_mode(value: &Value<'_>) -> Mode {
    if value.is_text("observe") {
        value.later();
        return Mode::Auto;
    }
    let modes = [Mode::Auto, Mode::QueueAll, Mode::PassAll, Mode::Closed, Mode::Paused];
    value.choice(&modes.map(|mode| (mode.as_str(), mode))).unwrap_or_default()
}

/// A hash of what the block says, whatever its layout: the order of keys, comments, quotes and
/// the spelling of numbers, spans and moments do not matter. Only keys that are written count, so
/// that a new default does not look like a change.
fn text_hash(block: &DeTable<'_>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hash_table(&mut hasher, block);
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first)
}

fn hash_table(hasher: &mut blake3::Hasher, table: &DeTable<'_>) {
    let mut entries: Vec<(&str, &Spanned<DeValue<'_>>)> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), value)).collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in entries {
        hash_text(hasher, key);
        hash_value(hasher, key, value.get_ref());
    }
}

fn hash_value(hasher: &mut blake3::Hasher, key: &str, value: &DeValue<'_>) {
    match value {
        DeValue::Array(elements) => {
            hash_text(hasher, "[");
            for element in elements {
                hash_value(hasher, key, element.get_ref());
            }
            hash_text(hasher, "]");
        }
        DeValue::Table(table) => {
            hash_text(hasher, "{");
            hash_table(hasher, table);
            hash_text(hasher, "}");
        }
        DeValue::String(text) => match units::duration(text).filter(|_| SPANS.contains(&key)) {
            Some(span) => hash_text(hasher, &units::show_duration(span)),
            None => hash_text(hasher, text),
        },
        DeValue::Datetime(at) => match units::moment(at) {
            Some(at) => hash_text(hasher, &at.as_millis().to_string()),
            None => hash_text(hasher, &at.to_string()),
        },
        DeValue::Boolean(flag) => hash_text(hasher, if *flag { "true" } else { "false" }),
        number @ (DeValue::Integer(_) | DeValue::Float(_)) => {
            hash_text(hasher, &float(number).unwrap_or_default().to_string());
        }
    }
}

/// The length first, so that no two sequences of texts are the same bytes.
fn hash_text(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(block: &str) -> u64 {
        text_hash(DeTable::parse(block).unwrap().get_ref())
    }

    #[test]
    fn layout_does_not_change_the_hash_of_a_block() {
        let hash_of = hash("name = \"a\"\ncapacity = 100\nactive_ttl = \"10m\"\n");
        for same in [
            "capacity = 1_00 # more\nactive_ttl = '600s'\nname = 'a'",
            "capacity = 0x64\nname = \"a\"\n\n\nactive_ttl = \"10min\"",
        ] {
            assert_eq!(hash(same), hash_of, "{same}");
        }
        let moment = hash("opens_at = 2026-01-01T00:00:00Z");
        assert_eq!(hash("opens_at = 2026-01-01 01:00:00+01:00"), moment);
        assert_eq!(hash("admit_per_second = 5"), hash("admit_per_second = 5.0"));
    }

    #[test]
    fn every_value_changes_the_hash_of_a_block() {
        let hash_of = hash("name = \"a\"\ncapacity = 100");
        for other in [
            "name = \"a\"\ncapacity = 101",
            "name = \"b\"\ncapacity = 100",
            "name = \"a\"",
            "name = \"a\"\ncapacity = 100\nmode = \"auto\"",
            "name = \"a\"\ncapacity = [100]",
        ] {
            assert_ne!(hash(other), hash_of, "{other}");
        }
    }

    #[test]
    fn templates_that_can_make_one_name_overlap() {
        let template = |prefix: &str, suffix: &str, kind| QueueTemplate::PerParameter {
            prefix: prefix.into(),
            parameter: "id".into(),
            suffix: suffix.into(),
            kind,
        };
        let (uuid, slug, integer) =
            (ParameterKind::Uuid, ParameterKind::Slug, ParameterKind::Integer);
        assert!(overlap(&template("d-", "", slug), &template("d-x-", "", uuid)));
        assert!(overlap(&template("d-", "", uuid), &template("d-", "", uuid)));
        assert!(overlap(&template("d-", "", integer), &template("d-1", "", integer)));
        assert!(!overlap(&template("d-", "", uuid), &template("d-x-", "", uuid)));
        assert!(!overlap(&template("d-", "", slug), &template("e-", "", slug)));
        let fixed = QueueTemplate::Fixed(QueueName::new("d-7").unwrap());
        assert!(overlap(&fixed, &template("d-", "", integer)));
        assert!(!overlap(&fixed, &template("d-", "", uuid)));
    }
}
