//! Entity tags of compressed variants: that of the plain object, followed by the coding and a digest.

use skep_http::negotiate::Encoding;

/// Entity tag of the variant in `coding` of an object with the tag `plain`, and as strong. Compressing it
/// again may give other bytes, and then another tag (RFC 9110 8.8.3.3).
pub(crate) fn tag_of(plain: &str, coding: Encoding, digest: [u8; 8]) -> String {
    match plain.strip_suffix('"').filter(|_| plain.starts_with('"')) {
        Some(begin) => {
            let digest = u64::from_be_bytes(digest);
            format!("{begin}-{}.{digest:016x}\"", coding.extension())
        }
        None => plain.to_owned(),
    }
}

/// Replaces tags of compressed variants in a list of a conditional field by those of the plain objects;
/// `None`: the list contains none.
pub(crate) fn plain_tags(list: &[u8]) -> Option<Vec<u8>> {
    // A tag has no quotes inside (RFC 9110 8.8.3): every second part is one.
    let parts = list.split(|byte| *byte == b'"').enumerate();
    let plain: Vec<_> = parts
        .map(|(at, part)| if at % 2 == 1 { without_coding(part).unwrap_or(part) } else { part })
        .collect();
    let plain = plain.join(&b'"');
    (plain.len() < list.len()).then_some(plain)
}

/// The tag without the coding and digest that [`tag_of`] appended.
fn without_coding(tag: &[u8]) -> Option<&[u8]> {
    let digest_at = tag.len().checked_sub(16)?;
    let (begin, digest) = tag.split_at(digest_at);
    let begin = begin.strip_suffix(b".").filter(|_| digest.iter().all(u8::is_ascii_hexdigit))?;
    let codings = [Encoding::Br, Encoding::Zstd, Encoding::Gzip];
    codings
        .iter()
        .find_map(|coding| begin.strip_suffix(coding.extension().as_bytes())?.strip_suffix(b"-"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn tags_of_variants_lead_to_those_of_plain_objects() {
        for coding in [Encoding::Br, Encoding::Zstd, Encoding::Gzip] {
            let tag = tag_of("\"v-1\"", coding, *b"12345678");
            assert_eq!(plain_tags(tag.as_bytes()).unwrap(), b"\"v-1\"");
            let list = format!("W/\"a\", {tag},\"b-br.12\" , {tag}");
            let plain = b"W/\"a\", \"v-1\",\"b-br.12\" , \"v-1\"";
            assert_eq!(plain_tags(list.as_bytes()).unwrap(), plain);
        }
        for other in
            ["", "*", "\"v1\"", "v1-br.f640513ba157baa3", "\"v1-br.f640513ba157baaX\"", "\""]
        {
            assert_eq!(plain_tags(other.as_bytes()), None, "{other}");
        }
    }
}
