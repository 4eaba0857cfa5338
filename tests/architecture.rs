//! Who may import whom: reads the table in `docs/architecture.md` and every file under `src`, and
//! names file and line of whatever breaks it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect by unwrapping")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// One row of the table.
#[derive(Debug)]
struct Row {
    may_import: Vec<String>,
    never: Vec<String>,
}

/// The rules, as the document states them.
struct Rules {
    rows: BTreeMap<String, Row>,
    adapters: Vec<String>,
}

/// Words that the tests of a module may use although the module may not.
const FINE_IN_TESTS: [&str; 1] = ["rand"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The words in backticks in `text`.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

impl Rules {
    fn read() -> Self {
        let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let (_, section) = text.split_once("## Who may import whom").expect("the section exists");
        let mut rows = BTreeMap::new();
        for line in section.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [_, module, may_import, never] = cells[..] else { panic!("odd row: {line}") };
            let Some(module) = quoted(module).pop() else { continue };
            let may_import = match may_import {
                "everything" => vec!["everything".to_owned()],
                cell => quoted(cell),
            };
            rows.insert(module, Row { may_import, never: quoted(never) });
        }
        let (_, adapters) = section.split_once("public constructors:").expect("adapters");
        let adapters = quoted(adapters.split('.').next().unwrap());
        Self { rows, adapters }
    }
}

/// A word or a sign of code, and the line it stands on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Token {
    text: String,
    line: usize,
}

/// The code in `source`, without comments and literals.
fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut index, mut line) = (Vec::new(), 0, 1);
    while index < chars.len() {
        let start = index;
        match at(index) {
            '/' if at(index + 1) == '/' => {
                while index < chars.len() && at(index) != '\n' {
                    index += 1;
                }
            }
            '/' if at(index + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(index), at(index + 1)) {
                        ('/', '*') => (depth, index) = (depth + 1, index + 2),
                        ('*', '/') => (depth, index) = (depth - 1, index + 2),
                        _ => index += 1,
                    }
                    if depth == 0 || index >= chars.len() {
                        break;
                    }
                }
            }
            'r' | 'b' | 'c' | '"' if literal_end(&chars, index).is_some() => {
                index = literal_end(&chars, index).unwrap();
            }
            // A character, unless it is a lifetime.
            '\'' if at(index + 1) == '\\' || at(index + 2) == '\'' => {
                index += if at(index + 1) == '\\' { 3 } else { 2 };
                while index < chars.len() && at(index) != '\'' {
                    index += 1;
                }
                index += 1;
            }
            c if word(c) => {
                while word(at(index)) {
                    index += 1;
                }
                let text = chars[start..index].iter().collect();
                found.push(Token { text, line });
            }
            ':' if at(index + 1) == ':' => {
                index += 2;
                found.push(Token { text: "::".to_owned(), line });
            }
            c => {
                index += 1;
                if !c.is_whitespace() {
                    found.push(Token { text: c.to_string(), line });
                }
            }
        }
        line += chars[start..index.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    found
}

/// Where the string literal that begins at `start` ends, if one begins there.
fn literal_end(chars: &[char], start: usize) -> Option<usize> {
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut index = start;
    while matches!(at(index), 'r' | 'b' | 'c') && index < start + 2 {
        index += 1;
    }
    let raw = chars[start..index].contains(&'r');
    let mut hashes = 0;
    while raw && at(index) == '#' {
        (hashes, index) = (hashes + 1, index + 1);
    }
    if at(index) != '"' {
        return None;
    }
    index += 1;
    while index < chars.len() {
        match at(index) {
            '\\' if !raw => index += 1,
            '"' if (1..=hashes).all(|offset| at(index + offset) == '#') => {
                return Some(index + 1 + hashes);
            }
            _ => {}
        }
        index += 1;
    }
    Some(index)
}

/// Splits off what is compiled for tests only: the items under `#[cfg(test)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut index) = (Vec::new(), 0);
    while index < tokens.len() {
        let here = tokens[index..].iter().take(marker.len()).map(|token| token.text.as_str());
        if !here.eq(marker) {
            kept.push(tokens[index].clone());
            index += 1;
            continue;
        }
        // To the end of the item: a semicolon, or the brace that closes it.
        let mut depth = 0;
        for token in &tokens[index + marker.len()..] {
            index += 1;
            match token.text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 && (token.text == ";" || token.text == "}") {
                break;
            }
        }
        index += marker.len();
    }
    kept
}

/// A path that leaves the module: its elements from the crate's root on.
#[derive(PartialEq, Eq, Debug)]
struct Import {
    path: Vec<String>,
    line: usize,
}

/// Every path through the crate's root, in `use` items and in expressions; `depth` is how many
/// modules deep the file is, so that as many `super`s lead to the root.
fn imports(tokens: &[Token], depth: usize) -> Vec<Import> {
    let mut found = Vec::new();
    let text = |index: usize| tokens.get(index).map_or("", |token: &Token| token.text.as_str());
    for start in 0..tokens.len() {
        if start > 0 && text(start - 1) == "::" {
            continue;
        }
        let mut index = start;
        let mut supers = 0;
        while text(index) == "super" && text(index + 1) == "::" {
            (supers, index) = (supers + 1, index + 2);
        }
        let from_root = matches!(text(start), "crate" | "anteroom") && text(start + 1) == "::";
        if from_root {
            index = start + 2;
        } else if supers == 0 || supers != depth {
            continue;
        }
        tree(tokens, &mut index, &[], &mut found);
    }
    found
}

/// Reads `a::b`, `a::{b, c::d}` from `index` on.
fn tree(tokens: &[Token], index: &mut usize, prefix: &[String], found: &mut Vec<Import>) {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(*index) {
        *index += 1;
        if token.text != "{" {
            path.push(token.text.clone());
            if tokens.get(*index).is_some_and(|token| token.text == "::") {
                *index += 1;
                continue;
            }
            found.push(Import { path, line: token.line });
            return;
        }
        while tokens.get(*index).is_some_and(|token| token.text != "}") {
            tree(tokens, index, &path, found);
            // `as name`, then a comma.
            while tokens.get(*index).is_some_and(|token| token.text != "," && token.text != "}") {
                *index += 1;
            }
            if tokens.get(*index).is_some_and(|token| token.text == ",") {
                *index += 1;
            }
        }
        *index += 1;
        return;
    }
}

/// Where `words`, such as `Instant::now`, stand.
fn mentions(tokens: &[Token], words: &str) -> Vec<usize> {
    let wanted: Vec<_> = self::tokens(words).into_iter().map(|token| token.text).collect();
    let same = |window: &[Token]| window.iter().map(|token| &token.text).eq(&wanted);
    tokens
        .windows(wanted.len())
        .filter(|window| same(window))
        .map(|window| window[0].line)
        .collect()
}

/// What is wrong with one file: (line, complaint).
fn complaints(rules: &Rules, path: &str, source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if !source.starts_with("//!") {
        found.push((1, "starts without a `//!` header".to_owned()));
    }
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let is_test = parts.iter().skip(1).any(|part| *part == "tests");
    let module = parts[0].to_owned();
    if module == "lib" || (module == "main" && parts.len() == 1) {
        return found;
    }
    let Some(row) = rules.rows.get(&module) else {
        found.push((1, format!("module `{module}` has no row in docs/architecture.md")));
        return found;
    };
    let all = tokens(source);
    let production = if is_test { Vec::new() } else { without_tests(&all) };
    for word in &row.never {
        let tests_may = FINE_IN_TESTS.contains(&word.as_str());
        for line in mentions(if tests_may { &production } else { &all }, word) {
            found.push((line, format!("`{module}` never mentions `{word}`")));
        }
    }
    let depth = parts.drain(..).filter(|part| *part != "mod").count();
    let everything = row.may_import == ["everything"];
    for import in imports(&production, depth) {
        let to = &import.path[0];
        let a_module = rules.rows.contains_key(to) || to == "lib" || to == "main";
        let allowed = everything || *to == module || to == "clock" || row.may_import.contains(to);
        if a_module && !allowed {
            found.push((import.line, format!("`{module}` may not import `{to}`")));
        }
    }
    if module != "store" && module != "server" {
        for adapter in &rules.adapters {
            let named = imports(&production, depth)
                .into_iter()
                .filter(|import| import.path.starts_with(&["store".to_owned(), adapter.clone()]))
                .map(|import| import.line)
                .chain(mentions(&production, &format!("store::{adapter}")));
            let mut lines: Vec<_> = named.collect();
            lines.dedup();
            found.extend(
                lines.into_iter().map(|line| (line, format!("names the adapter `{adapter}`"))),
            );
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let rules = Rules::read();
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    files.sort();
    assert!(files.len() > 20, "only {} files found", files.len());
    let mut all = String::new();
    for file in files {
        let path = file.strip_prefix(root().join("src")).unwrap().to_str().unwrap().to_owned();
        for (line, complaint) in complaints(&rules, &path, &fs::read_to_string(&file).unwrap()) {
            writeln!(all, "src/{path}:{line}: {complaint}").unwrap();
        }
    }
    assert!(all.is_empty(), "\n{all}");
}

#[test]
fn the_table_is_read_as_it_is_written() {
    let rules = Rules::read();
    assert!(rules.rows["queue"].may_import.is_empty());
    assert!(rules.rows["queue"].never.contains(&"async".to_owned()));
    assert_eq!(rules.rows["admission"].may_import, ["queue", "store"]);
    assert_eq!(rules.rows["server"].may_import, ["everything"]);
    assert_eq!(rules.adapters, ["embedded", "embedded_at", "redis"]);
    for (module, row) in &rules.rows {
        for import in &row.may_import {
            let known = import == "everything" || rules.rows.contains_key(import);
            assert!(known, "`{module}` may import `{import}`, which has no row");
            // Layers only look down, so the table cannot hold a circle of two.
            let back = rules.rows.get(import).is_some_and(|other| {
                other.may_import.contains(module) && row.may_import != ["everything"]
            });
            assert!(!back, "`{module}` and `{import}` import each other");
        }
    }
}

/// Complaints about a file, as `line: text`.
fn about(path: &str, source: &str) -> Vec<String> {
    let found = complaints(&Rules::read(), path, source);
    found.into_iter().map(|(line, complaint)| format!("{line}: {complaint}")).collect()
}

#[test]
fn a_forbidden_import_is_found_however_it_is_written() {
    let expected = ["2: `queue` may not import `store`"];
    for code in [
        "use crate::store::QueueStore;",
        "use crate::{clock::Timestamp, store::{QueueStore, StoreError}};",
        "fn f() -> crate::store::StoreError { todo }",
        "use super::super::store;",
        "use anteroom::store as s;",
        "#[rustfmt::skip] use crate::store;",
    ] {
        let mut found = about("queue/line.rs", &format!("//! x\n{code}"));
        found.dedup();
        assert_eq!(found, expected, "{code}");
    }
}

#[test]
fn comments_literals_tests_and_the_own_module_are_no_imports() {
    let source = r##"//! See [`x`](crate::store::X).
        use crate::clock::Timestamp; use crate::queue::Seq; use super::{Place, UserTag};
        /* use crate::store; /* nested */ async */
        const A: &str = "crate::store \" async"; const B: &str = r#"crate::store " async"#;
        fn f<'a>(x: &'a u8) -> char { '"' } fn g() -> char { '\'' } const C: &[u8] = b"async";
        #[cfg(test)] mod tests { use crate::store::embedded; fn f() { rand::rng(); } }
    "##;
    assert!(about("queue/line.rs", source).is_empty(), "{:?}", about("queue/line.rs", source));
    assert!(about("gate/tests.rs", "//! x\nuse crate::store::embedded;").is_empty());
}

#[test]
fn code_after_the_tests_of_a_file_counts_again() {
    let source = "//! x\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn f() { {} }\nuse crate::gate;";
    assert_eq!(about("queue.rs", source), ["6: `queue` may not import `gate`"]);
}

#[test]
fn adapters_clocks_and_missing_headers_are_found() {
    let named = ["2: names the adapter `redis`"];
    assert_eq!(about("gate.rs", "//! x\nuse crate::store::{QueueStore, redis};"), named);
    let named = ["2: names the adapter `embedded`"];
    assert_eq!(about("api/enter.rs", "//! x\nfn f() { store::embedded(clock) }"), named);
    assert!(about("server.rs", "//! x\nuse crate::store::redis;").is_empty());
    assert_eq!(
        about("token/keyring.rs", "use std::time::SystemTime;"),
        ["1: starts without a `//!` header", "1: `token` never mentions `SystemTime`"]
    );
    assert_eq!(
        about("queue/tests.rs", "//! x\nasync fn f() {}"),
        ["2: `queue` never mentions `async`"]
    );
    assert_eq!(
        about("utils.rs", "//! x"),
        ["1: module `utils` has no row in docs/architecture.md"]
    );
}
