//! "Did you mean": the word nearest to a misspelt one.

/// The candidate nearest to `word`, if one is near enough to be what was
/// meant: a third of its letters may be wrong.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Beyond this length nobody mistypes a setting, and the work is bounded.
    const CHARS_MAX: usize = 64;
    let word: Vec<char> = word.chars().take(CHARS_MAX + 1).collect();
    if word.len() > CHARS_MAX {
        return None;
    }
    let scored = candidates.into_iter().map(|candidate| (distance(&word, candidate), candidate));
    let near = scored.filter(|(edits, candidate)| *edits <= candidate.chars().count().div_ceil(3));
    near.min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// `did you mean …?` for the nearest candidate.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(word, candidates).map(|nearest| format!("did you mean `{nearest}`?"))
}

/// Edit distance with swaps of neighbours (Damerau 1964, in the restricted
/// form), letters without regard to case.
fn distance(word: &[char], candidate: &str) -> usize {
    let word: Vec<char> = word.iter().map(char::to_ascii_lowercase).collect();
    let other: Vec<char> = candidate.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=word.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = last[j - 1] + usize::from(word[i - 1] != other[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            let swapped =
                i > 1 && j > 1 && word[i - 1] == other[j - 2] && word[i - 2] == other[j - 1];
            if swapped {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let keys = ["head_bytes_max", "fields_max", "target_bytes_max"];
        assert_eq!(nearest("head_byte_max", keys), Some("head_bytes_max"));
        assert_eq!(nearest("Fields_Max", keys), Some("fields_max"));
        assert_eq!(nearest("feilds_max", keys), Some("fields_max"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(nearest(&"x".repeat(9999), keys), None);
    }

    #[test]
    fn distance_counts_edits_and_swaps() {
        let distance = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
