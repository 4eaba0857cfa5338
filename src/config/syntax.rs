//! Text that is not quite TOML: every mistake once, and the rest of the text still readable.
//!
//! The parser recovers by guessing, so one missing bracket turns the whole rest of a file into
//! mistakes. Here the line of a mistake is taken out and the rest parsed again; a mistake that leaves
//! something open ends the search, because nothing after it can be trusted.

use toml::de::DeTable;

/// More mistakes than anybody reads at once.
const MOST: usize = 20;

/// How far back the beginning of something left open is looked for, in lines.
const MOST_LINES_BACK: usize = 200;

/// One place where a text is not TOML.
pub(super) struct Mistake {
    /// The byte.
    pub(super) at: usize,
    /// What the parser says. It shows no text of the file, which may hold secrets.
    pub(super) message: String,
}

/// A text with its mistakes taken out.
pub(super) struct Repaired {
    /// TOML, with every remaining byte where it was.
    pub(super) text: String,
    /// What was wrong, in order.
    pub(super) mistakes: Vec<Mistake>,
}

/// Finds the mistakes of `text`.
pub(super) fn repair(text: &str) -> Repaired {
    let mut repaired = Repaired { text: text.to_owned(), mistakes: Vec::new() };
    while let Err(error) = DeTable::parse(&repaired.text) {
        let at = error.span().map_or(text.len(), |span| span.start);
        let start = start_of_line(&repaired.text, at);
        repaired.mistakes.push(Mistake { at, message: error.message().to_owned() });
        if repaired.mistakes.len() < MOST && is_sound(&repaired.text[..start]) {
            let end = end_of_part(&repaired.text, start);
            if blank(&mut repaired.text, start, end) {
                continue;
            }
        }
        // Something was left open before this line: keep what stands before it.
        let end = sound_start(&repaired.text, start);
        repaired.text.truncate(end);
        break;
    }
    repaired.mistakes.sort_by_key(|mistake| mistake.at);
    repaired
}

fn is_sound(text: &str) -> bool {
    DeTable::parse(text).is_ok()
}

fn start_of_line(text: &str, at: usize) -> usize {
    // Positions come from the parser and lie between characters; if not, the whole text counts.
    let before = text.get(..at).unwrap_or(text);
    before.rfind('\n').map_or(0, |newline| newline + 1)
}

/// The end of the line, or, for a table's header, of the table: its keys belong to no other one.
fn end_of_part(text: &str, start: usize) -> usize {
    let rest = &text[start..];
    let header = rest.trim_start_matches([' ', '\t']).starts_with('[');
    let mut end = 0;
    for (index, line) in rest.split_inclusive('\n').enumerate() {
        let next_header = line.trim_start_matches([' ', '\t']).starts_with('[');
        if index > 0 && (!header || next_header) {
            break;
        }
        end += line.len();
    }
    start + end
}

/// Overwrites a part with spaces, so that all positions stay. False if there is nothing to take out.
fn blank(text: &mut String, start: usize, end: usize) -> bool {
    let part = &text[start..end];
    let spaces: String = part.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    let changed = spaces != part;
    text.replace_range(start..end, &spaces);
    changed
}

/// The end of the longest sound text of whole lines before `start`, not too far back.
fn sound_start(text: &str, start: usize) -> usize {
    let mut end = start;
    for _ in 0..MOST_LINES_BACK {
        if end == 0 || is_sound(&text[..end]) {
            return end;
        }
        end = start_of_line(text, end - 1);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> (Vec<usize>, String) {
        let repaired = repair(text);
        assert!(is_sound(&repaired.text), "{}", repaired.text);
        let lines = repaired.mistakes.iter().map(|m| text[..m.at].matches('\n').count() + 1);
        (lines.collect(), repaired.text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_mistake_counts_once_and_the_rest_stays() {
        let (lines, rest) = mistakes("a = 1\nb = \nc = yes\n[t]\nd = 1\nd = 2\n[t]\ne = 1\n[u]\n");
        assert_eq!(lines, [2, 3, 6, 7]);
        assert_eq!(rest, "a = 1 [t] d = 1 [u]");
    }

    #[test]
    fn nothing_after_something_left_open_counts() {
        let (lines, rest) = mistakes("a = 1\nb = [\n  1,\nc = 2\nd = [t]\n");
        assert_eq!((lines.len(), rest.as_str()), (1, "a = 1"));
        let (lines, rest) = mistakes("a = 1\nb = \"\"\"x\nc = 2\n");
        assert_eq!((lines.len(), rest.as_str()), (1, "a = 1"));
    }

    #[test]
    fn any_text_ends() {
        for text in ["", "\u{0}", "=", "[", "]", "é = ]", "\r", "a\n".repeat(50).as_str(), "'''"] {
            mistakes(text);
        }
    }
}
