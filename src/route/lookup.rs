//! The most specific path pattern for a path, by `matchit`.
//!
//! `matchit` prefers literals to parameters and backtracks, as our order asks, but it holds neither
//! `/{id}` beside `/*` nor a second answer when the first does not serve the method. So there is
//! one [`Lookup`] for each host and method, and inside it one router for patterns that end and one
//! for each depth at which a `*` stands, fed with as many segments of the path. Of the few answers
//! the greatest rank wins.

use std::cell::OnceCell;

use matchit::Router;

use super::path::PathPattern;
use super::reading::fold;

/// A pattern that a lookup may answer with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    /// The position of its route.
    pub(super) index: usize,
    pub(super) path: &'a PathPattern,
    pub(super) case_insensitive: bool,
    /// Decides between equal paths: the greater wins.
    pub(super) method_rank: u8,
}

/// A path to look up; folds its letter case at most once.
pub(super) struct Sought<'a> {
    path: &'a str,
    folded: OnceCell<std::borrow::Cow<'a, str>>,
}

impl<'a> Sought<'a> {
    /// `path`: in match form, without a trailing slash.
    pub(super) fn new(path: &'a str) -> Self {
        Self { path, folded: OnceCell::new() }
    }

    /// The path without letter case.
    pub(super) fn folded(&self) -> &str {
        self.folded.get_or_init(|| fold(self.path))
    }

    /// The path in the form that a pattern is compared in.
    pub(super) fn form(&self, case_insensitive: bool) -> &str {
        if case_insensitive { self.folded() } else { self.path }
    }
}

/// The patterns of one host and one method.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    exact_case: Tree,
    any_case: Option<Tree>,
}

impl Lookup {
    /// Takes the candidates in order; of two with the same shape the first stays.
    pub(super) fn new<'a>(candidates: impl Iterator<Item = Candidate<'a>>) -> Self {
        let mut lookup = Self::default();
        for candidate in candidates {
            let tree = if candidate.case_insensitive {
                lookup.any_case.get_or_insert_default()
            } else {
                &mut lookup.exact_case
            };
            tree.insert(candidate);
        }
        lookup
    }

    /// The position of the most specific route.
    pub(super) fn find(&self, sought: &Sought<'_>) -> Option<usize> {
        let exact = self.exact_case.find(sought.path);
        let folded = self.any_case.as_ref().and_then(|tree| tree.find(sought.folded()));
        // Equal ranks on one path are a tie, which a table does not hold.
        [exact, folded].into_iter().flatten().max_by_key(|(rank, _)| *rank).map(|(_, index)| index)
    }
}

/// A rank and the position of its route.
type Ranked = (Vec<u8>, usize);

#[derive(Debug, Default)]
struct Tree {
    whole: Option<Router<Ranked>>,
    /// For each depth at which a `*` stands, the deepest first, what may stand before it.
    open: Vec<(usize, Router<Ranked>)>,
}

impl Tree {
    fn insert(&mut self, candidate: Candidate<'_>) {
        let pattern = candidate.path;
        let router = if pattern.is_open() {
            let depth = pattern.depth();
            let at = self.open.iter().position(|(known, _)| *known <= depth);
            let at = at.unwrap_or(self.open.len());
            if self.open.get(at).is_none_or(|(known, _)| *known != depth) {
                self.open.insert(at, (depth, Router::new()));
            }
            &mut self.open[at].1
        } else {
            self.whole.get_or_insert_default()
        };
        let mut rank = pattern.rank();
        rank.push(candidate.method_rank);
        // Shapes are well formed, so the only failure is a second pattern of the same shape.
        let _second =
            router.insert(pattern.shape(candidate.case_insensitive), (rank, candidate.index));
    }

    fn find(&self, path: &str) -> Option<(&[u8], usize)> {
        let whole = self.whole.iter().filter_map(|router| router.at(path).ok());
        let open = self.open.iter().filter_map(|(depth, router)| {
            let start = first_segments(path, *depth)?;
            router.at(start).ok()
        });
        let mut best: Option<&Ranked> = None;
        for found in whole.chain(open) {
            // A path that ends beats `*`, and the deeper literals beat the shallower, so without a
            // parameter on the way nothing that follows is more specific.
            if found.params.is_empty() && best.is_none() {
                best = Some(found.value);
                break;
            }
            if best.is_none_or(|(rank, _)| *rank < found.value.0) {
                best = Some(found.value);
            }
        }
        best.map(|(rank, index)| (rank.as_slice(), *index))
    }
}

/// The first `depth` segments of a path, if it has so many.
fn first_segments(path: &str, depth: usize) -> Option<&str> {
    if depth == 0 || path == "/" {
        return (depth == 0).then_some("/");
    }
    let mut slashes = 0;
    for (at, byte) in path.bytes().enumerate() {
        if byte == b'/' {
            if slashes == depth {
                return Some(&path[..at]);
            }
            slashes += 1;
        }
    }
    (slashes == depth).then_some(path)
}
