//! Which known key was probably meant.

/// The candidate that is spelt almost like `word`: at most one edit in three letters.
pub(super) fn nearest(word: &str, candidates: &[&'static str]) -> Option<&'static str> {
    let edits = |candidate: &&&'static str| distance(word, candidate);
    let best = candidates.iter().min_by_key(edits)?;
    (distance(word, best) * 3 <= word.len().max(best.len())).then_some(best)
}

/// How many letters have to be added, dropped or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    // Long words cannot be near any key; this also bounds the work.
    if a.len() > 40 {
        return usize::MAX / 4;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_the_key_that_was_meant() {
        let known = ["waiting_ttl", "claim_ttl", "capacity"];
        assert_eq!(nearest("wating_ttl", &known), Some("waiting_ttl"));
        assert_eq!(nearest("waitingTtl", &known), Some("waiting_ttl"));
        assert_eq!(nearest("banana", &known), None);
        assert_eq!(nearest(&"x".repeat(5000), &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
