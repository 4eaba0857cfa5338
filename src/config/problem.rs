//! Mistakes and warnings of a configuration file, each with its place.
//!
//! All mistakes are collected and shown at once. A secret never gets in here: what was found is
//! described by the reader, which knows which keys hold secrets.

use std::fmt;
use std::io;

/// One mistake in a configuration file.
#[derive(Debug)]
pub struct Problem {
    /// Line from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// Column from 1, in characters; 0 when the file as a whole is meant.
    pub column: usize,
    /// The key's full path, e.g. `route[0].queue`; empty when no key is meant.
    pub key: String,
    /// What is wrong with it.
    pub cause: Cause,
}

/// What is wrong with a key.
#[derive(Debug)]
pub enum Cause {
    /// The text is not TOML.
    Syntax {
        /// What the parser says.
        message: String,
    },
    /// There is no such key.
    Unknown {
        /// A key that is spelt almost like it.
        nearest: Option<&'static str>,
    },
    /// The key is needed.
    Missing {
        /// What belongs there.
        expected: String,
    },
    /// The value does not fit.
    Wrong {
        /// What was found, never a secret.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The key or value is planned, and this version cannot do it.
    Later,
    /// A file could not be read.
    Unreadable {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { message } => write!(f, "not TOML: {message}"),
            Self::Unknown { nearest: None } => f.write_str("found an unknown key"),
            Self::Unknown { nearest: Some(key) } => {
                write!(f, "found an unknown key, did you mean `{key}`?")
            }
            Self::Missing { expected } => write!(f, "found nothing, expected {expected}"),
            Self::Wrong { found, expected } => write!(f, "found {found}, expected {expected}"),
            Self::Later => f.write_str("comes in a later version"),
            Self::Unreadable { path, source } => write!(f, "`{path}` cannot be read: {source}"),
        }
    }
}

/// Everything wrong with one configuration file, in the order of the file. Shown as one line per
/// mistake: `gateway.toml:12:9: route[0].queue: found "x", expected one of "deal-1"`.
#[derive(Debug)]
pub struct Report {
    /// The file as it was named.
    pub file: String,
    /// The mistakes, at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            place(f, &self.file, problem.line, problem.column, &problem.key)?;
            problem.cause.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// Something that works and is probably not what was meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// Line from 1.
    pub line: usize,
    /// Column from 1, in characters.
    pub column: usize,
    /// The key's full path.
    pub key: String,
    /// What will happen.
    pub text: String,
}

/// All warnings about one file, in its order; often none. Shown like a [`Report`],
/// each on a line that ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warnings {
    /// The file as it was named.
    pub file: String,
    /// The warnings.
    pub list: Vec<Warning>,
}

impl fmt::Display for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.list {
            place(f, &self.file, warning.line, warning.column, &warning.key)?;
            writeln!(f, "warning: {}", warning.text)?;
        }
        Ok(())
    }
}

fn place(
    f: &mut fmt::Formatter<'_>,
    file: &str,
    line: usize,
    column: usize,
    key: &str,
) -> fmt::Result {
    f.write_str(file)?;
    if line > 0 {
        write!(f, ":{line}:{column}")?;
    }
    f.write_str(": ")?;
    if key.is_empty() { Ok(()) } else { write!(f, "{key}: ") }
}
