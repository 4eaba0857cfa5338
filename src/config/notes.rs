//! What reading one file brings up: problems, warnings, and which keys the reader knows.
//!
//! All sections write into the same notes while they hold parts of the file, so writing needs no
//! exclusive borrow. Nothing here decides what is a mistake.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::problem::{Cause, Problem, Warning};
use super::syntax::Mistake;

/// Where values of the environment come from.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What reading one file has brought up so far.
pub(super) struct Notes<'a> {
    text: &'a str,
    /// Relative paths start here: the directory of the file.
    directory: PathBuf,
    environment: Environment<'a>,
    broken: bool,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Warning>>,
    known: RefCell<BTreeMap<String, Availability>>,
}

/// Whether this version can do what a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Availability {
    /// Yes.
    Now,
    /// Not yet: the key is refused with "comes in a later version".
    Later,
}

impl<'a> Notes<'a> {
    /// Nothing yet about `text`, which stands in `file`.
    pub(super) fn new(text: &'a str, file: &Path, environment: Environment<'a>) -> Self {
        Self {
            text,
            directory: file.parent().map(Path::to_path_buf).unwrap_or_default(),
            environment,
            broken: false,
            problems: RefCell::default(),
            warnings: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// Notes where the text is not TOML.
    pub(super) fn syntax(&mut self, mistakes: Vec<Mistake>) {
        for Mistake { at, message } in mistakes {
            self.broken = true;
            self.problem(at, "", Cause::Syntax { message });
        }
    }

    /// Notes a problem at the byte `at` of the text.
    pub(super) fn problem(&self, at: usize, key: &str, cause: Cause) {
        let (line, column) = self.place(at);
        self.problems.borrow_mut().push(Problem { line, column, key: key.to_owned(), cause });
    }

    /// Line and column, both from 1, of a byte of the text.
    pub(super) fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column)
    }

    /// A variable of the environment; an empty one counts as absent.
    pub(super) fn environment(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    /// Whether the text is not sound TOML: something may be missing only for that reason.
    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// A path named in the file.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.directory.join(text)
    }

    /// Notes a warning about the byte `at` of the text.
    pub(super) fn warning(&self, at: usize, key: &str, text: String) {
        let (line, column) = self.place(at);
        self.warnings.borrow_mut().push(Warning { line, column, key: key.to_owned(), text });
    }

    /// Notes that the reader knows a key, written without the indices of lists.
    pub(super) fn know(&self, key: String, availability: Availability) {
        self.known.borrow_mut().insert(key, availability);
    }

    /// The problems and warnings, in the order of the file.
    pub(super) fn into_lists(self) -> (Vec<Problem>, Vec<Warning>) {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| (problem.line, problem.column));
        let mut warnings = self.warnings.into_inner();
        warnings.sort_by_key(|warning| (warning.line, warning.column));
        (problems, warnings)
    }

    /// The keys that were asked for, without the indices of lists and without tables.
    pub(super) fn into_known(self) -> BTreeMap<String, Availability> {
        let mut known = self.known.into_inner();
        let tables: Vec<String> = known
            .keys()
            .filter_map(|key| key.rsplit_once('.').map(|(table, _)| table.to_owned()))
            .collect();
        known.retain(|key, _| !tables.contains(key));
        known
    }
}
