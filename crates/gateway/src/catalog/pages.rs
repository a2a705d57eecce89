//! A list in pages, ready made for both eras, in a fixed order.

use super::ListSettings;
use crate::result;
use mcp::error::RpcError;
use mcp::json::{RawObject, quote};
use mcp::paging;
use mcp::server::Outcome;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Entries on one page.
const PAGE: usize = 100;

/// One list.
#[derive(Default)]
pub(super) struct Pages {
    /// What the list is called in results and cursors.
    list: &'static str,
    modern: Vec<Outcome>,
    legacy: Vec<Outcome>,
    /// The page that follows the entry of that name: only the last name of a page is a cursor that was issued.
    after: HashMap<String, usize>,
    /// Identifies what clients see.
    digest: [u8; 32],
}

impl Pages {
    /// The pages of `entries`, each its name and its object on the wire.
    pub(super) fn new(list: &'static str, entries: &[(&str, String)], lists: &ListSettings) -> Pages {
        let mut pages = Pages { list, ..Pages::default() };
        let mut hash = Sha256::new();
        let scope = if lists.public { "public" } else { "private" };
        let count = entries.len().div_ceil(PAGE).max(1);
        for page in 0..count {
            let slice = &entries[page * PAGE..entries.len().min((page + 1) * PAGE)];
            let objects: Vec<&str> = slice.iter().map(|(_, object)| object.as_str()).collect();
            let mut text = format!(r#"{{"{list}":[{}]"#, objects.join(","));
            hash.update(&text);
            if page + 1 < count
                && let Some((last, _)) = slice.last()
            {
                text.push_str(&format!(r#","nextCursor":{}"#, quote(&paging::encode(list, last))));
                pages.after.insert((*last).to_owned(), page + 1);
            }
            pages.legacy.push(result::legacy(format!("{text}}}"), &[]));
            text.push_str(&format!(r#","ttlMs":{},"cacheScope":"{scope}"}}"#, lists.ttl.0.max(0)));
            pages.modern.push(result::modern(text, &lists.server_info, &[]));
        }
        pages.digest = hash.finalize().into();
        pages
    }

    /// The page that is asked for.
    pub(super) fn page(&self, legacy: bool, params: Option<&RawObject>) -> Outcome {
        let index = match paging::requested(self.list, params) {
            Ok(None) => Some(0),
            Ok(Some(name)) => self.after.get(&name).copied(),
            Err(e) => return Outcome::Error(e),
        };
        let pages = if legacy { &self.legacy } else { &self.modern };
        match index.and_then(|i| pages.get(i)) {
            Some(page) => page.clone(),
            None => Outcome::Error(RpcError::invalid_params(
                "this cursor is of a list that has changed; list again without a cursor",
            )),
        }
    }

    /// The bytes of its pages, as the modern era writes them.
    pub(super) fn bytes(&self) -> usize {
        let lengths = self.modern.iter().map(|page| match page {
            Outcome::Result(result) => result.raw().as_str().len(),
            Outcome::Error(_) => 0,
        });
        lengths.sum()
    }

    /// Every byte of it, in both eras.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.modern.iter().chain(&self.legacy).filter_map(|page| match page {
            Outcome::Result(result) => Some(result.raw().as_str()),
            Outcome::Error(_) => None,
        })
    }

    /// Whether clients see the same.
    pub(super) fn is_like(&self, other: &Pages) -> bool {
        self.digest == other.digest
    }
}
