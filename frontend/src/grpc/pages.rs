//! Lists in pages (rule elasticity-21). Pure.
//!
//! A token says behind which entry the next page begins, and of which list it is. It holds the entry's place in the
//! order, not its position: entries that come and go move no others from one page to another.
//!
//! Invariant: an entry that is in the list from the first page to the last is on one of them.

use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Most entries of a page.
pub(crate) const MOST: usize = 1_000;
/// Where a page is cut, in bytes: many clients take messages of 4 MiB and no more.
const BYTES: usize = 1 << 20;
/// Longest token that is read.
const TOKEN_MAX: usize = 16 << 10;

/// A token, before it is made opaque.
#[derive(Deserialize, Serialize)]
struct Token<K> {
    /// The list.
    list: String,
    /// The last entry of the page before.
    after: K,
}

/// A page that somebody asks for.
pub(crate) struct Page<K> {
    list: String,
    /// Entries; `None`: all of them.
    size: Option<usize>,
    after: Option<K>,
}

impl<K: Ord + Serialize + DeserializeOwned> Page<K> {
    /// Reads what the caller says about a page of this list. Without a size it is the given one.
    ///
    /// # Errors
    /// The token is none, or of another list: why it is refused.
    pub(crate) fn of(list: String, size: u32, token: &str, else_size: Option<usize>) -> Result<Self, &'static str> {
        let size = match usize::try_from(size) {
            Ok(0) => else_size,
            size => Some(size.map_or(MOST, |size| size.min(MOST))),
        };
        if token.is_empty() {
            return Ok(Self { list, size, after: None });
        }
        let bytes = if token.len() <= TOKEN_MAX { hex::decode(token).ok() } else { None };
        let read = bytes.and_then(|bytes| serde_json::from_slice::<Token<K>>(&bytes).ok());
        match read {
            None => Err("it is no token of a list"),
            Some(read) if read.list != list => Err("it is of another list"),
            Some(read) => Ok(Self { list, size, after: Some(read.after) }),
        }
    }

    /// The entries of the page, of all that there are in any order, and the token of the next page; empty if there is
    /// none. `show` is called for entries of the page only.
    pub(crate) fn cut<T, M: Message>(self, mut all: Vec<(K, T)>, mut show: impl FnMut(T) -> M) -> (Vec<M>, String) {
        if let Some(after) = &self.after {
            all.retain(|(place, _)| place > after);
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (mut shown, mut bytes, count) = (Vec::new(), 0_usize, all.len());
        for (place, entry) in all {
            let message = show(entry);
            bytes = bytes.saturating_add(message.encoded_len());
            shown.push(message);
            let Some(size) = self.size else { continue };
            if shown.len() < count && (shown.len() >= size || bytes >= BYTES) {
                return (shown, token(self.list, place));
            }
        }
        (shown, String::new())
    }
}

fn token<K: Serialize>(list: String, after: K) -> String {
    // Text and numbers: they can be written.
    serde_json::to_vec(&Token { list, after }).map(hex::encode).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of a list of names, each shown as itself.
    fn page(list: &[&str], size: u32, token: &str) -> (Vec<String>, String) {
        let page = Page::<String>::of("n".to_owned(), size, token, None).unwrap();
        page.cut(list.iter().map(|name| ((*name).to_owned(), *name)).collect(), str::to_owned)
    }

    #[test]
    fn a_list_that_changes_between_pages_still_has_what_is_there_all_the_time() {
        let (first, token) = page(&["d", "b", "a", "c"], 2, "");
        assert_eq!(first, ["a", "b"]);
        // list by then -> second page, whether there is a third
        let table: [(&[&str], &[&str], bool); 5] = [
            (&["d", "c", "b", "a"], &["c", "d"], false),
            (&["d", "c"], &["c", "d"], false),
            (&["aa", "d", "c", "a"], &["c", "d"], false),
            (&["bb", "d", "c"], &["bb", "c"], true),
            (&["a"], &[], false),
        ];
        for (list, expected, goes_on) in table {
            let (second, token) = page(list, 2, &token);
            assert_eq!(
                (second.as_slice(), !token.is_empty()),
                (&*expected.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), goes_on),
                "{list:?}"
            );
        }
        assert_eq!(page(&["b", "a"], 0, ""), (vec!["a".to_owned(), "b".to_owned()], String::new()));
    }

    #[test]
    fn a_page_is_bounded_in_entries_and_bytes() {
        let many: Vec<String> = (0..1_500).map(|number| format!("{number:04}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(page(&many, u32::MAX, "").0.len(), MOST);
        assert_eq!(page(&many, 0, "").0.len(), many.len(), "all of them");
        let large = "x".repeat(BYTES / 2);
        let large: Vec<String> = (0..5).map(|number| format!("{number}{large}")).collect();
        let large: Vec<&str> = large.iter().map(String::as_str).collect();
        let (first, token) = page(&large, 100, "");
        assert_eq!((first.len(), token.is_empty()), (2, false));
        assert_eq!(page(&large[..1], 1, ""), (vec![large[0].to_owned()], String::new()), "the last one has no token");
    }

    #[test]
    fn a_token_is_good_for_its_list_only() {
        let (_, good) = page(&["a", "b"], 1, "");
        let refused = |list: &str, token: &str| Page::<String>::of(list.to_owned(), 1, token, None).err();
        assert_eq!(refused("n", &good), None);
        assert_eq!(refused("other", &good), Some("it is of another list"));
        for token in ["zz", &"00".repeat(TOKEN_MAX)] {
            assert_eq!(refused("n", token), Some("it is no token of a list"));
        }
        let of_others = Page::<(u64, String)>::of("n".to_owned(), 1, &good, None).err();
        assert_eq!(of_others, Some("it is no token of a list"));
    }
}
