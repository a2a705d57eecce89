//! Whether the list of an answer goes on.
//!
//! A manifest names what tells of further pages, with `more` or `next`. Where it names nothing, and where what it names is not
//! there (a yes or no that is null is none), the usual signs are looked for: in headers, beside the list, and in what is told about it (`meta`, `paging`, …). An
//! answer with none of them says nothing, unless its list is empty: a list that was cut short looks like any other.

use super::{Next, pages};
use crate::judge::Answer;
use serde::{Deserialize, Serialize};
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
    pub absent: Option<Absent>,
}

/// What it means that a yes or no that the manifest names is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Absent {
    /// Nothing. An intent says so where [`More::UNSAID`] is named, too, for that stands there also without a word.
    Unsaid,
    /// There are no further pages: the provider leaves a no out.
    Whole,
}

impl More<'_> {
    /// What tells of further pages if a manifest names nothing.
    pub(crate) const UNSAID: &'static str = "/has_more";

    /// What an answer says of further pages of the list at `items`, of which so many objects came.
    pub(crate) fn of(&self, a: &Answer, all: &Value, items: &str, count: usize) -> Told {
        let link = matches!(self.next, Some(Next::Link(rel)) if pages::link(a, rel).is_some());
        let last = self.at.rsplit('/').next().unwrap_or_default();
        let there = all.pointer(self.at).filter(|_| self.is_named() && !self.undivided);
        let said = there.and_then(|v| if is_flag(last) { says(v) } else { Some(is_set(v)) });
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
        let by_absence = matches!(self.next, Some(Next::Link(_))) || !self.is_needed();
        let contrary = match (self.undivided, by_absence) {
            (true, _) => signs.says,
            // A cursor or link says by its absence that there are none; a yes or no by the operator's word.
            (false, true) => signs.says.or(signs.leads),
            // A yes or no has to be there.
            (false, false) => return signs.told(count == 0),
        };
        contrary.map_or(Told::Whole, |sign| Told::Further(Some(sign)))
    }

    /// Whether the manifest names what tells of them. Without a word, what stands at [`More::UNSAID`] is a sign like others.
    fn is_named(&self) -> bool {
        self.at != More::UNSAID || self.absent.is_some() || matches!(self.next, Some(Next::Cursor(..)))
    }

    /// Whether a yes or no has to be there.
    fn is_needed(&self) -> bool {
        is_flag(self.at.rsplit('/').next().unwrap_or_default()) && self.absent != Some(Absent::Whole)
    }

    /// Why nothing found says nothing, where that can't be known.
    pub(crate) fn unsaid(&self) -> String {
        let begins =
            "the look-up found other objects, and its answer does not say whether there are further pages";
        if self.is_named() && self.is_needed() {
            format!(
                "{begins}: there is nothing at `{0}`; if the provider leaves that out where there are none, write \
                 more = {{ at = \"{0}\", absent = \"whole\" }}, else name what tells of them",
                self.at
            )
        } else {
            format!("{begins}; say how it does, with `more` or `next` in the manifest's `lookup`")
        }
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

/// What a yes or no says. Null, and whatever else is neither, says nothing.
fn says(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(_) | Value::Number(_) => Some(is_set(value)),
        _ if value == "false" => Some(false),
        other => is_set(other).then_some(true),
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
                let more = says(value);
                note(&mut self.says, more == Some(true), as_is);
                self.end |= more == Some(false);
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
mod tests;
