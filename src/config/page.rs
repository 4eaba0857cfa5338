//! `[page]`: the waiting room page.

use crate::page::PageSettings;

use super::origin;
use super::raw::{Table, Value};

pub(super) fn read(root: &mut Table<'_>) -> PageSettings {
    let mut table = root.table("page");
    let title = table.take("title");
    let message = table.take("message");
    let frame_ancestors = table.take("frame_ancestors");
    table.later("template");
    table.done();

    let default = PageSettings::default();
    PageSettings {
        title: title.line_of_text(1..=200).unwrap_or(default.title),
        message: message.line_of_text(0..=1000).unwrap_or(default.message),
        frame_ancestors: read_ancestors(&frame_ancestors).unwrap_or(default.frame_ancestors),
    }
}

fn read_ancestors(value: &Value<'_>) -> Option<Vec<String>> {
    let expected = "\"'none'\" alone, or \"'self'\" and origins such as \"https://shop.example\"";
    let elements = value.list()?;
    let alone = elements.len() == 1;
    if elements.is_empty() {
        value.refuse("an empty list", expected);
    }
    let source = |text: &str| match text {
        "'self'" => Some(text.to_owned()),
        "'none'" => alone.then(|| text.to_owned()),
        origin => origin::parse(origin),
    };
    Some(elements.iter().filter_map(|element| element.parsed(expected, source)).collect())
}
