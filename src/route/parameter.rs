//! The query parameter that names a queue.
//!
//! Back ends disagree on which of two equal parameters counts, on what separates parameters, and
//! on which spellings of a name are the same. One value in one place is read; everything that
//! another reader could take for a second one is refused.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::target::TargetError;

/// The value of `name` in `query` (both without `?`), decoded: `%XX` and `+` for a blank.
pub(super) fn read(query: Option<&str>, name: &str) -> Result<String, TargetError> {
    let mut value = None;
    for pair in query.unwrap_or_default().split('&') {
        for (position, part) in pair.split(';').enumerate() {
            let (key, text) = part.split_once('=').unwrap_or((part, ""));
            let key = decode(key);
            if alias(&key) != alias(name.as_bytes()) {
                continue;
            }
            // `;` separates for some back ends and is part of the value for others.
            let doubtful = position > 0 || pair.contains(';') || *key != *name.as_bytes();
            if doubtful || value.replace(text).is_some() {
                return Err(TargetError::ParameterRepeated);
            }
        }
    }
    let value = decode(value.ok_or(TargetError::ParameterMissing)?);
    String::from_utf8(value.into_owned()).map_err(|_| TargetError::ParameterEncoding)
}

/// Broken escapes are left as they are.
fn decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        percent_decode_str(&text.replace('+', " ")).collect::<Vec<u8>>().into()
    } else {
        percent_decode_str(text).into()
    }
}

/// What the loosest back ends make of a name: letter case ignored, blanks before it dropped, an
/// index (`id[]`) or NUL and what follows cut off, `.`, `-` and blanks taken for `_`.
fn alias(name: &[u8]) -> Vec<u8> {
    let name = name.trim_ascii();
    let end = name.iter().position(|b| matches!(b, b'[' | 0)).unwrap_or(name.len());
    let fold = |b: &u8| match b {
        b'.' | b'-' | b' ' => b'_',
        other => other.to_ascii_lowercase(),
    };
    name[..end].iter().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_read_and_decoded_once() {
        let read = |query| read(Some(query), "product_id").unwrap();
        assert_eq!(read("product_id=7"), "7");
        assert_eq!(read("a=1&product%5Fid=a%20b+c&b=%"), "a b c");
        assert_eq!(read("product_id=%2537&z=1;y=2"), "%37");
        assert_eq!(read("product_id="), "");
    }

    #[test]
    fn a_second_value_in_any_spelling_is_refused() {
        for query in [
            "product_id=1&product_id=2",
            "product_id=1&product_id=1",
            "product_id=1&Product_ID=2",
            "product_id=1&product_id[]=2",
            "product_id=1&product.id=2",
            "product_id=1&+product_id=2",
            "product_id=1;product_id=2",
            "product_id=1;x=2",
            "x=1;product_id=1",
            "PRODUCT_ID=1",
            "product_id=1&product%5fid%00x=2",
            "product_id=1&product_id",
        ] {
            let read = read(Some(query), "product_id");
            assert_eq!(read, Err(TargetError::ParameterRepeated), "{query}");
        }
    }

    #[test]
    fn no_value_and_no_text_are_told_apart() {
        assert_eq!(read(None, "id"), Err(TargetError::ParameterMissing));
        assert_eq!(read(Some("ids=1"), "id"), Err(TargetError::ParameterMissing));
        assert_eq!(read(Some("id=%FF"), "id"), Err(TargetError::ParameterEncoding));
    }
}
