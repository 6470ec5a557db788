//! "Did you mean": the known word nearest to a misspelled one.

/// Returns the candidate nearest to `word`, if it is near enough: a third of its letters may be
/// wrong; a transposition of two letters counts as one error, and case is ignored.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are unlikely to be mistyped names, and the limit bounds the work.
    const CHARS_MAX: usize = 64;
    if word.chars().nth(CHARS_MAX).is_some() {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let edits = |candidate: &str| strsim::osa_distance(&word, &candidate.to_ascii_lowercase());
    let scored = candidates.into_iter().map(|candidate| (edits(candidate), candidate));
    let near = scored.filter(|(edits, candidate)| *edits <= candidate.chars().count().div_ceil(3));
    near.min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// Returns `did you mean …?` with the nearest candidate.
pub fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(word, candidates).map(|nearest| format!("did you mean `{nearest}`?"))
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
}
