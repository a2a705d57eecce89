//! Whether the list of an answer goes on.
//!
//! A manifest names what tells of further pages, with `more` or `next`. Where it names nothing, and where what it names is not
//! there, the usual signs are looked for: in headers, beside the list, and in what is told about it (`meta`, `paging`, …). An
//! answer with none of them says nothing, unless its list is empty: a list that was cut short looks like any other.

use super::{Next, pages};
use crate::judge::Answer;
use serde_json::Value;

/// Members that tell about a list, as [`plain`] writes them.
const ABOUT: [&str; 14] = [
    "meta",
    "metadata",
    "paging",
    "pagination",
    "pager",
    "page",
    "pageinfo",
    "pages",
    "links",
    "cursor",
    "cursors",
    "responsemetadata",
    "resultinfo",
    "listinfo",
];
/// How deep they are looked for in each other.
const MAX_DEPTH: usize = 3;
/// The most characters of a sign's name that a reason shows.
const MAX_SHOWN: usize = 40;
/// What stands behind `next` where it leads to the next page.
const LEADS: [&str; 18] = [
    "",
    "page",
    "pagecursor",
    "pagelink",
    "pagetoken",
    "pageuri",
    "pageurl",
    "cursor",
    "token",
    "link",
    "url",
    "uri",
    "href",
    "offset",
    "marker",
    "key",
    "recordsurl",
    "continuationtoken",
];
/// What says yes or no to more.
const FLAGS: [&str; 9] = [
    "more",
    "moreavailable",
    "moredata",
    "moreitems",
    "moreitemsincollection",
    "moreresults",
    "moreresultsavailable",
    "istruncated",
    "truncated",
];
/// How many pages there are.
const PAGES: [&str; 6] = ["totalpages", "pagestotal", "pagecount", "numpages", "pages", "lastpage"];
/// How many objects there are.
const COUNTS: [&str; 14] = [
    "count",
    "found",
    "itemcount",
    "numfound",
    "recordcount",
    "resultcount",
    "total",
    "totalcount",
    "totalelements",
    "totalhits",
    "totalitems",
    "totalrecords",
    "totalresults",
    "totalsize",
];
/// Cursors that are there on a last page, too, or only repeat the question.
const CURSORS: [&str; 6] =
    ["after", "cursor", "continuation", "continuationtoken", "continue", "lastevaluatedkey"];

/// What an answer says of further pages of its list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// There are none.
    Whole,
    /// There are some. By a sign of this name, if not by what the manifest names.
    Further(Option<String>),
    /// That can't be known.
    Unsaid,
}

/// What a manifest says of further pages.
pub(crate) struct More<'a> {
    /// JSON pointer to whatever tells of them.
    pub at: &'a str,
    pub next: Option<&'a Next>,
    /// The list comes whole, by the operator's word.
    pub undivided: bool,
}

impl More<'_> {
    /// What tells of further pages if a manifest names nothing.
    pub(crate) const UNSAID: &'static str = "/has_more";

    /// What an answer says of further pages of the list at `items`, of which so many objects came.
    pub(crate) fn of(&self, a: &Answer, all: &Value, items: &str, count: usize) -> Told {
        let link = matches!(self.next, Some(Next::Link(rel)) if pages::link(a, rel).is_some());
        let said = all.pointer(self.at).filter(|_| !self.undivided).map(is_set);
        let cursor = matches!(self.next, Some(Next::Cursor(at, _)) if all.pointer(at).is_some_and(is_set));
        match said {
            _ if link => return Told::Further(None),
            Some(true) => return Told::Further(None),
            Some(false) => return Told::Whole,
            // Whatever leads to a next page says that there is one.
            None if cursor => return Told::Further(None),
            None => {}
        }
        let signs = Signs::of(a, all, items, count);
        let last = self.at.rsplit('/').next().unwrap_or_default();
        let by_absence = matches!(self.next, Some(Next::Link(_))) || !is_flag(last);
        let contrary = match (self.undivided, by_absence) {
            (true, _) => signs.says,
            // A cursor or link says by its absence that there are none.
            (false, true) => signs.says.or(signs.leads),
            // A yes or no has to be there.
            (false, false) => return signs.told(count == 0),
        };
        contrary.map_or(Told::Whole, |sign| Told::Further(Some(sign)))
    }
}

/// What was found: of each kind the name of the first.
#[derive(Debug, Default, PartialEq, Eq)]
struct Signs {
    /// Says itself that there are further pages: a yes, or a link.
    says: Option<String>,
    /// Leads to the next page, by its name.
    leads: Option<String>,
    /// There are more pages than one, or more objects than came. Which of the pages this is, that doesn't tell.
    counted: Option<String>,
    /// May lead to a next page, or be something else.
    may_lead: Option<String>,
    /// There is none.
    end: bool,
}

/// Whether the name of a member or header says yes or no to more.
fn is_flag(name: &str) -> bool {
    let name = plain(name);
    ["hasmore", "hasnext", "hasanother"].iter().any(|b| name.starts_with(b)) || FLAGS.contains(&&*name)
}

/// A name without what divides its words.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether something is there. An object is nothing if nothing is in it.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Object(members) => members.values().any(is_set),
        Value::Bool(true) | Value::Array(_) => true,
    }
}

/// A name as a reason shows it; it is the provider's.
fn shown(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_graphic() && *c != '`').take(MAX_SHOWN).collect()
}

impl Signs {
    /// Those of an answer that has so many objects at this place.
    fn of(a: &Answer, all: &Value, items: &str, count: usize) -> Signs {
        let says = pages::link(a, "next").map(|_| "Link".to_owned());
        let mut signs = Signs { says, ..Signs::default() };
        for (header, value) in &a.headers {
            let header = header.as_str();
            let name = plain(header.strip_prefix("x-").unwrap_or(header));
            // Other headers may begin like a sign.
            if is_flag(&name) || leads(&name) || PAGES.contains(&&*name) || COUNTS.contains(&&*name) {
                let text = value.to_str().unwrap_or_default().trim();
                let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
                signs.take(header, &name, &value, count);
            }
        }
        // The objects around the list.
        let mut here = Some(all);
        for part in items.split('/').skip(1) {
            here = here.and_then(|at| {
                signs.beside(at, count, 0);
                at.get(part.replace("~1", "/").replace("~0", "~"))
            });
        }
        signs
    }

    fn beside(&mut self, at: &Value, count: usize, depth: usize) {
        for (member, value) in at.as_object().into_iter().flatten() {
            let name = plain(member);
            match value {
                Value::Object(_) if ABOUT.contains(&&*name) && depth < MAX_DEPTH => {
                    self.beside(value, count, depth + 1);
                }
                // Links with their relations, as in PayPal's answers.
                Value::Array(links) if name == "links" => {
                    let next =
                        |link: &Value| link["rel"].as_str().is_some_and(|r| r.eq_ignore_ascii_case("next"));
                    note(&mut self.says, links.iter().any(next), member);
                }
                // There it is the size of a page, as in LinkedIn's answers.
                _ if name == "count" && depth > 0 => {}
                _ => self.take(member, &name, value, count),
            }
        }
    }

    fn take(&mut self, as_is: &str, name: &str, value: &Value, count: usize) {
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
        #[allow(clippy::cast_precision_loss)]
        let count = count as f64;
        match (name, value) {
            ("islast" | "islastpage" | "last" | "lastpage" | "done", Value::Bool(last)) => {
                note(&mut self.says, !last, as_is);
                self.end |= last;
            }
            // That the search was whole says nothing of pages.
            ("incompleteresults" | "incomplete", _) => note(&mut self.says, is_set(value), as_is),
            _ if is_flag(name) => {
                let more = is_set(value) && value != "false";
                note(&mut self.says, more, as_is);
                self.end |= !more;
            }
            _ if leads(name) => {
                note(&mut self.leads, is_set(value), as_is);
                self.end |= !is_set(value);
            }
            // They lead to a next question about what changes, and stand on the last page.
            _ if name.contains("nextsync") || name.contains("nextdelta") => {}
            _ if PAGES.contains(&name) => {
                if let Some(pages) = number {
                    note(&mut self.counted, pages > 1.0, as_is);
                    self.end |= pages <= 1.0;
                }
            }
            _ if COUNTS.contains(&name) => {
                note(&mut self.counted, number.is_some_and(|all| all > count), as_is);
            }
            _ if name.contains("next") || CURSORS.contains(&name) => {
                note(&mut self.may_lead, is_set(value), as_is);
            }
            _ => {}
        }
    }

    /// What they say by themselves.
    fn told(self, empty: bool) -> Told {
        match self.says.or(self.leads).or(self.counted) {
            Some(sign) => Told::Further(Some(sign)),
            None if self.end => Told::Whole,
            None => match self.may_lead {
                Some(sign) => Told::Further(Some(sign)),
                None if empty => Told::Whole,
                None => Told::Unsaid,
            },
        }
    }
}

fn note(sign: &mut Option<String>, is: bool, name: &str) {
    if is && sign.is_none() {
        *sign = Some(shown(name));
    }
}

/// Whether a member of this name leads to the next page, and says by its absence that there is none.
fn leads(name: &str) -> bool {
    let name = name.strip_prefix("odata").unwrap_or(name);
    name.strip_prefix("next").is_some_and(|rest| LEADS.contains(&rest))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(headers: &[(&'static str, &str)], body: &Value, items: &str) -> Option<bool> {
        let mut map = http::HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let a = Answer { status: 200, headers: map, body: bytes::Bytes::new() };
        let count = body.pointer(items).and_then(Value::as_array).unwrap().len();
        match Signs::of(&a, body, items, count).told(count == 0) {
            Told::Whole => Some(false),
            Told::Further(sign) => sign.map(|_| true),
            Told::Unsaid => None,
        }
    }

    #[test]
    fn the_usual_signs_of_further_pages() {
        let one = json!([{ "id": 1 }]);
        let with = |rest: Value| {
            let mut all = json!({ "data": one });
            all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            all
        };
        for rest in [
            json!({ "has_more": true }),
            json!({ "hasMore": 1 }),
            json!({ "has_next": "yes" }),
            json!({ "IsTruncated": true }),
            json!({ "more_items_in_collection": true }),
            json!({ "incomplete_results": true }),
            json!({ "last": false }),
            json!({ "done": false }),
            json!({ "next": "https://h/?page=2" }),
            json!({ "next": { "href": "/x" } }),
            json!({ "next_cursor": "abc" }),
            json!({ "nextPageToken": "abc" }),
            json!({ "@odata.nextLink": "https://h" }),
            json!({ "next_whatever": 7 }),
            json!({ "cursor": "abc" }),
            json!({ "LastEvaluatedKey": { "id": 1 } }),
            json!({ "total": 2 }),
            json!({ "totalElements": "12" }),
            json!({ "count": 200, "next": null }),
            json!({ "total_pages": 2, "page": 1 }),
            json!({ "meta": { "next": 2 } }),
            json!({ "meta": { "pagination": { "total_pages": 3 } } }),
            json!({ "paging": { "next": { "after": "x" } } }),
            json!({ "paging": { "cursors": { "after": "x" } } }),
            json!({ "links": { "next": "/x" } }),
            json!({ "_links": { "next": { "href": "/x" } } }),
            json!({ "links": [{ "rel": "self" }, { "rel": "next", "href": "/x" }] }),
            json!({ "response_metadata": { "next_cursor": "x" } }),
            json!({ "result_info": { "total_count": 9 } }),
        ] {
            assert_eq!(told(&[], &with(rest.clone()), "/data"), Some(true), "{rest}");
        }
        for header in [
            ("link", "<https://h/?page=2>; rel=\"next\""),
            ("x-next-page", "2"),
            ("x-total-pages", "3"),
            ("x-total-count", "31"),
            ("x-has-more", "true"),
        ] {
            assert_eq!(told(&[header], &one, ""), Some(true), "{header:?}");
        }
        // Beside a list that stands deeper, and where nothing came.
        assert_eq!(
            told(&[], &json!({ "result": { "items": [1], "hasMore": true } }), "/result/items"),
            Some(true)
        );
        assert_eq!(
            told(&[], &json!({ "result": { "items": [1] }, "next": "x" }), "/result/items"),
            Some(true)
        );
        assert_eq!(told(&[], &json!({ "data": [], "next_cursor": "x" }), "/data"), Some(true));
    }

    #[test]
    fn an_end_is_said_and_not_concluded() {
        for body in [
            json!({ "data": [1], "has_more": false }),
            json!({ "data": [1], "has_more": false, "cursor": "x" }),
            json!({ "data": [1], "next_cursor": null }),
            json!({ "data": [1], "next": "" }),
            json!({ "data": [1], "paging": { "next": { "after": null } } }),
            json!({ "data": [1], "last": true, "totalPages": 1, "totalElements": 1 }),
            json!({ "data": [1], "meta": { "last_page": 1, "total": 1 } }),
            json!({ "data": [] }),
            json!({ "data": [], "total": 0, "cursor": null }),
            json!({ "data": [1], "has_more": false, "next_billing_date": "2027-01-01" }),
            json!({ "data": [], "next_sync_token": "x" }),
            json!({ "data": [], "@odata.nextDeltaLink": "https://h" }),
            // The size of a page.
            json!({ "data": [], "paging": { "start": 0, "count": 10, "links": [] } }),
        ] {
            assert_eq!(told(&[], &body, "/data"), Some(false), "{body}");
        }
        assert_eq!(told(&[("x-next-page", "")], &json!([1]), ""), Some(false));
        assert_eq!(told(&[], &json!([]), ""), Some(false));
        for body in [
            json!({ "data": [1] }),
            json!({ "data": [1], "object": "list", "url": "/v1/x", "next_steps": null }),
            json!({ "data": [1], "cursor": null, "limit": 100 }),
            json!({ "data": [1], "total": 1, "count": 1 }),
            json!({ "data": [1], "incomplete_results": false }),
            // What an object says of itself is about the object.
            json!({ "data": [{ "has_more": false, "next": null }] }),
        ] {
            assert_eq!(told(&[], &body, "/data"), None, "{body}");
        }
        assert_eq!(told(&[("last-modified", "now"), ("date", "now")], &json!([1]), ""), None);
    }

    #[test]
    fn what_is_named_and_what_contradicts_it() {
        let of = |at: &str, next: Option<&Next>, undivided: bool, body: &Value| {
            let a = Answer { status: 200, headers: http::HeaderMap::new(), body: bytes::Bytes::new() };
            More { at, next, undivided }.of(&a, body, "/data", 1)
        };
        let by = |sign: &str| Told::Further(Some(sign.to_owned()));
        let cursor = Next::Cursor("/cursor".into(), "cursor".into());
        let data = |rest: Value| {
            let mut all = json!({ "data": [1] });
            all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            all
        };
        // A cursor that is there says so, whatever is missing beside it, and a no ends it.
        for (rest, told) in [
            (json!({ "cursor": "x" }), Told::Further(None)),
            (json!({ "cursor": "x", "has_more": false }), Told::Whole),
            (json!({ "has_more": true }), Told::Further(None)),
            (json!({ "cursor": null }), Told::Unsaid),
        ] {
            assert_eq!(of("/has_more", Some(&cursor), false, &data(rest.clone())), told, "{rest}");
        }
        // Named, and not there: only what plainly says the contrary counts.
        for (rest, named, undivided) in [
            (json!({ "hasMore": true }), by("hasMore"), by("hasMore")),
            (json!({ "done": false }), by("done"), by("done")),
            (json!({ "next_page": "x" }), by("next_page"), Told::Whole),
            (json!({ "paging": { "next": "x" } }), by("next"), Told::Whole),
            (json!({ "next_billing_date": "x", "nextSyncToken": "x" }), Told::Whole, Told::Whole),
            (json!({ "total_pages": 3, "total": 9, "after": "x" }), Told::Whole, Told::Whole),
        ] {
            let body = data(rest);
            assert_eq!(of("/cursor", Some(&cursor), false, &body), named, "{body}");
            assert_eq!(of("/next_cursor", None, false, &body), named, "{body}");
            assert_eq!(of(More::UNSAID, None, true, &body), undivided, "{body}");
        }
        assert_eq!(shown(&format!("a`b\u{1b}\n{}", "x".repeat(99))), format!("ab{}", "x".repeat(38)));
    }

    #[test]
    fn names_that_say_yes_or_no() {
        for flag in ["has_more", "hasNextPage", "is_truncated", "more", "moreResultsAvailable"] {
            assert!(is_flag(flag), "{flag}");
        }
        for other in ["next", "next_cursor", "cursor", "total", "nextPageToken"] {
            assert!(!is_flag(other), "{other}");
        }
    }
}
