//! The file as it is written: tables and values with their places.
//!
//! A section takes every key it knows, then says it is [`done`](Table::done): what is left is
//! unknown. Nothing here stops at a mistake; each one is noted and reading goes on. What a value
//! means is for the sections.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::clock::Timestamp;

use super::notes::{Availability, Notes};
use super::problem::Cause;
use super::spelling::nearest;
use super::units;

/// A table of the file, or one that is not there and so has no keys.
pub(super) struct Table<'a> {
    notes: &'a Notes<'a>,
    path: String,
    at: usize,
    entries: Option<&'a DeTable<'a>>,
    taken: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The whole file.
    pub(super) fn root(notes: &'a Notes<'a>, entries: &'a DeTable<'a>) -> Self {
        Self { notes, path: String::new(), at: 0, entries: Some(entries), taken: Vec::new() }
    }

    /// Whether the file has this table.
    pub(super) const fn is_set(&self) -> bool {
        self.entries.is_some()
    }

    /// Whether the file has this key here, whatever it holds.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.is_some_and(|entries| entries.contains_key(key))
    }

    /// Its entries as parsed.
    pub(super) const fn entries(&self) -> Option<&'a DeTable<'a>> {
        self.entries
    }

    fn key_path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn know(&mut self, key: &'static str, availability: Availability) {
        self.taken.push(key);
        let mut path = String::new();
        let mut inside = false;
        for part in self.key_path(key).chars() {
            inside = (inside || part == '[') && part != ']';
            if !inside && part != ']' {
                path.push(part);
            }
        }
        self.notes.know(path, availability);
    }

    fn value(&self, key: &str) -> Value<'a> {
        let raw = self.entries.and_then(|entries| entries.get(key));
        Value {
            notes: self.notes,
            path: self.key_path(key),
            at: raw.map_or(self.at, |raw| raw.span().start),
            raw: raw.map(Spanned::get_ref),
            secret: false,
        }
    }

    /// The value of `key`, present or not.
    pub(super) fn take(&mut self, key: &'static str) -> Value<'a> {
        self.know(key, Availability::Now);
        self.value(key)
    }

    /// A key that a later version will know.
    pub(super) fn later(&mut self, key: &'static str) {
        self.know(key, Availability::Later);
        if self.has(key) {
            self.value(key).later();
        }
    }

    /// The table `key`, present or not.
    pub(super) fn table(&mut self, key: &'static str) -> Self {
        self.take(key).table()
    }

    /// The tables of the list `key`, written `[[key]]` or inline.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Self> {
        let header = self.key_path(key);
        let list = self.take(key);
        let elements = list
            .read(format_args!("a list of tables, each written [[{header}]]"), |value| {
                value.as_array().map(|elements| list.elements(elements))
            });
        let tables = elements.unwrap_or_default().into_iter().map(|element| element.table());
        tables.filter(Table::is_set).collect()
    }

    /// All entries of a table whose keys are free. Call instead of [`Table::done`].
    pub(super) fn free_entries(self) -> Vec<(&'a str, Value<'a>)> {
        let keys = self.entries.into_iter().flat_map(|entries| entries.keys());
        keys.map(|key| (key.get_ref().as_ref(), self.value(key.get_ref()))).collect()
    }

    /// Reports every key that was not taken.
    pub(super) fn done(&self) {
        for key in self.entries.into_iter().flat_map(|entries| entries.keys()) {
            let name: &str = key.get_ref();
            if !self.taken.contains(&name) {
                let cause = Cause::Unknown { nearest: nearest(name, &self.taken) };
                self.notes.problem(key.span().start, &self.key_path(name), cause);
            }
        }
    }

    /// Says that this table as a whole does not fit.
    pub(super) fn wrong(&self, found: impl Display, expected: impl Display) {
        let cause = Cause::Wrong { found: found.to_string(), expected: expected.to_string() };
        self.notes.problem(self.at, &self.path, cause);
    }

    /// Warns about this table as a whole.
    pub(super) fn warn(&self, text: impl Display) {
        self.notes.warning(self.at, &self.path, text.to_string());
    }

    /// `line 12`, to point at this table from another problem.
    pub(super) fn line(&self) -> usize {
        self.notes.place(self.at).0
    }
}

/// A value of the file with its place, or the place where it could have been.
///
/// The reading methods return `None` for an absent value and for one that does not fit; the latter
/// is noted.
#[derive(Clone)]
pub(super) struct Value<'a> {
    notes: &'a Notes<'a>,
    path: String,
    at: usize,
    raw: Option<&'a DeValue<'a>>,
    secret: bool,
}

impl<'a> Value<'a> {
    /// Whether the file has this key.
    pub(super) const fn is_set(&self) -> bool {
        self.raw.is_some()
    }

    /// What reading the file has brought up so far.
    pub(super) const fn notes(&self) -> &'a Notes<'a> {
        self.notes
    }

    /// The line it stands in.
    pub(super) fn line(&self) -> usize {
        self.notes.place(self.at).0
    }

    /// Marks it as a secret that is never shown.
    pub(super) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Reports that the key is needed, if it is absent.
    pub(super) fn required(self, expected: impl Display) -> Self {
        if self.raw.is_none() && !self.notes.is_broken() {
            let cause = Cause::Missing { expected: expected.to_string() };
            self.notes.problem(self.at, &self.path, cause);
        }
        self
    }

    /// Reports that the value does not fit. An absent value is reported as the default it has.
    pub(super) fn wrong(&self, expected: impl Display) {
        self.refuse(self.shown(), expected);
    }

    /// Reports that the value does not fit, in words of the caller.
    pub(super) fn refuse(&self, found: impl Display, expected: impl Display) {
        let cause = Cause::Wrong { found: found.to_string(), expected: expected.to_string() };
        self.notes.problem(self.at, &self.path, cause);
    }

    /// Reports that the value does not fit together with others, unless the text is not sound TOML:
    /// the others may then be missing only for that reason.
    pub(super) fn contradicts(&self, found: impl Display, expected: impl Display) {
        if !self.notes.is_broken() {
            self.refuse(found, expected);
        }
    }

    /// Reports a key that would have no effect.
    pub(super) fn useless(&self, without: impl Display) {
        if self.is_set() {
            self.contradicts("a key without effect", format_args!("it only with {without}"));
        }
    }

    /// Reports something planned.
    pub(super) fn later(&self) {
        self.notes.problem(self.at, &self.path, Cause::Later);
    }

    /// Reports a file that cannot be read.
    pub(super) fn unreadable(&self, path: &Path, source: std::io::Error) {
        let cause = Cause::Unreadable { path: path.display().to_string(), source };
        self.notes.problem(self.at, &self.path, cause);
    }

    /// Warns about the value.
    pub(super) fn warn(&self, text: impl Display) {
        self.notes.warning(self.at, &self.path, text.to_string());
    }

    /// The value as it may be shown in a report.
    pub(super) fn shown(&self) -> String {
        match self.raw {
            None => "nothing".into(),
            Some(DeValue::Array(_)) => "a list".into(),
            Some(DeValue::Table(_)) => "a table".into(),
            Some(_) if self.secret => "***".into(),
            Some(DeValue::String(text)) if text.chars().count() > 80 => {
                format!("{:?}", text.chars().take(80).collect::<String>() + "…")
            }
            Some(DeValue::String(text)) => format!("{text:?}"),
            Some(DeValue::Integer(number)) => number.to_string(),
            Some(DeValue::Float(number)) => number.to_string(),
            Some(DeValue::Boolean(flag)) => flag.to_string(),
            Some(DeValue::Datetime(at)) => at.to_string(),
        }
    }

    /// What `read` makes of the value; `expected` describes what it accepts.
    pub(super) fn read<T>(
        &self,
        expected: impl Display,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = read(self.raw?);
        if value.is_none() {
            self.wrong(expected);
        }
        value
    }

    /// A text for which `parse` has a meaning.
    pub(super) fn parsed<T>(
        &self,
        expected: impl Display,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Option<T> {
        self.read(expected, |value| value.as_str().and_then(parse))
    }

    /// A text.
    pub(super) fn text(&self) -> Option<&'a str> {
        self.parsed("a text", Some)
    }

    /// Whether it is exactly this text.
    pub(super) fn is_text(&self, text: &str) -> bool {
        self.raw.and_then(DeValue::as_str) == Some(text)
    }

    /// A text of some characters without control characters.
    pub(super) fn line_of_text(&self, chars: RangeInclusive<usize>) -> Option<String> {
        let expected = format!(
            "a text of {} to {} characters without line breaks",
            chars.start(),
            chars.end()
        );
        self.parsed(expected, |text| {
            let sound =
                chars.contains(&text.chars().count()) && !text.chars().any(char::is_control);
            sound.then(|| text.to_owned())
        })
    }

    /// `true` or `false`.
    pub(super) fn flag(&self) -> Option<bool> {
        self.read("true or false", DeValue::as_bool)
    }

    /// A whole number.
    pub(super) fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(expected, |value| whole(value).filter(|number| range.contains(number)))
    }

    /// A count that fits the machine.
    pub(super) fn count(&self, range: RangeInclusive<u32>) -> Option<usize> {
        let number = self.integer(u64::from(*range.start())..=u64::from(*range.end()))?;
        usize::try_from(number).ok()
    }

    /// A number of bytes, as a whole number or with a unit.
    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = format!(
            "a number of bytes or a size such as \"16 KiB\", from {} to {}",
            units::show_size(*range.start()),
            units::show_size(*range.end())
        );
        self.read(expected, |value| {
            let bytes = whole(value).or_else(|| value.as_str().and_then(units::size))?;
            range.contains(&bytes).then_some(bytes)
        })
    }

    /// A number, whole or not, for which `parse` has a meaning.
    pub(super) fn number<T>(
        &self,
        expected: impl Display,
        parse: impl FnOnce(f64) -> Option<T>,
    ) -> Option<T> {
        self.read(expected, |value| float(value).and_then(parse))
    }

    /// A span.
    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let expected = format!(
            "a duration such as \"45s\", from {} to {}",
            units::show_duration(*range.start()),
            units::show_duration(*range.end())
        );
        self.parsed(expected, |text| units::duration(text).filter(|span| range.contains(span)))
    }

    /// A span of any length.
    pub(super) fn span(&self) -> Option<Duration> {
        self.parsed("a duration such as \"45s\"", units::duration)
    }

    /// A moment.
    pub(super) fn moment(&self) -> Option<Timestamp> {
        let expected = match self.raw {
            Some(DeValue::Datetime(at)) if at.offset.is_none() => {
                "an offset after it, such as 2026-11-27T09:00:00+01:00: gateways in different time \
                 zones would open at different moments"
            }
            Some(DeValue::String(_)) => {
                "a date-time with an offset and without quotes, such as 2026-11-27T09:00:00+01:00"
            }
            _ => "a date-time with an offset, such as 2026-11-27T09:00:00+01:00",
        };
        self.read(expected, |value| value.as_datetime().and_then(units::moment))
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.parsed(one_of(&words), |text| {
            choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice)
        })
    }

    /// The elements of a list.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        self.read("a list", |value| value.as_array().map(|elements| self.elements(elements)))
    }

    /// The elements of a list, or the value itself when it is a text.
    pub(super) fn one_or_more(&self) -> Option<Vec<Self>> {
        self.read("a text or a list of texts", |value| match value {
            DeValue::String(_) => Some(vec![self.clone()]),
            DeValue::Array(elements) => Some(self.elements(elements)),
            _ => None,
        })
    }

    fn elements(&self, elements: &'a toml::de::DeArray<'a>) -> Vec<Self> {
        let element = |(index, element): (usize, &'a Spanned<DeValue<'a>>)| Self {
            notes: self.notes,
            path: format!("{}[{index}]", self.path),
            at: element.span().start,
            raw: Some(element.get_ref()),
            secret: self.secret,
        };
        elements.iter().enumerate().map(element).collect()
    }

    /// The table here; one without entries when there is none.
    pub(super) fn table(&self) -> Table<'a> {
        Table {
            notes: self.notes,
            path: self.path.clone(),
            at: self.at,
            entries: self.read("a table", DeValue::as_table),
            taken: Vec::new(),
        }
    }

    /// A path to a file: relative paths start at the directory of the configuration file.
    pub(super) fn file_path(&self) -> Option<PathBuf> {
        self.parsed("the path of a file", |text| (!text.is_empty()).then(|| self.notes.path(text)))
    }

    /// The content of the file named here.
    pub(super) fn file_text(&self) -> Option<String> {
        let path = self.file_path()?;
        std::fs::read_to_string(&path).map_err(|error| self.unreadable(&path, error)).ok()
    }

    /// A secret from the environment variable named here. Neither is shown: a secret may have been
    /// written in place of a name.
    pub(super) fn variable(&self) -> Option<String> {
        let hidden = self.clone().secret();
        let name = hidden.parsed("the name of an environment variable", |name| {
            let sound = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            (sound && !name.is_empty()).then_some(name)
        })?;
        let value = self.notes.environment(name);
        if value.is_none() {
            self.refuse("the name of a variable that is not set", "it in the environment");
        }
        value
    }
}

/// A whole number that is not negative.
pub(super) fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Any finite number.
pub(super) fn float(value: &DeValue<'_>) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "only used for rates, which are small")]
        DeValue::Integer(_) => whole(value).map(|number| number as f64),
        DeValue::Float(number) => {
            number.as_str().parse().ok().filter(|number: &f64| number.is_finite())
        }
        _ => None,
    }
}

/// `one of "a", "b"`, or just `"a"`. Of very many words, the first.
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().take(20).map(|word| format!("{word:?}")).collect();
    let more = if words.len() > quoted.len() { ", …" } else { "" };
    match quoted.as_slice() {
        [only] => only.clone(),
        all => format!("one of {}{more}", all.join(", ")),
    }
}
