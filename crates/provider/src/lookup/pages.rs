//! From one page of a list to the next, never to another host.

use crate::encode::percent;
use crate::judge::Answer;
use serde::{Deserialize, Serialize};

/// How the next page is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Next {
    /// JSON pointer to its cursor, and the query parameter that takes it.
    Cursor(String, String),
    /// In the `Link` header (RFC 8288), under this relation.
    Link(String),
}

/// A URL with a query parameter more.
pub(super) fn with(url: &str, query: &str, value: &str) -> String {
    let join = if url.contains('?') { '&' } else { '?' };
    format!("{url}{join}{}={}", percent(query), percent(value))
}

/// Where the `Link` header leads under a relation.
pub(crate) fn link(a: &Answer, rel: &str) -> Option<String> {
    let all = a.headers.get_all(http::header::LINK).iter().filter_map(|v| v.to_str().ok());
    all.flat_map(links).find(|(_, parameters)| is_of(parameters, rel)).map(|(to, _)| to.to_owned())
}

/// Each target with its parameters. A comma may stand in a target, so the header is not divided there.
fn links(header: &str) -> Vec<(&str, &str)> {
    let mut out = Vec::new();
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((to, after)) = after.split_once('>') else { break };
        let end = after.find('<').unwrap_or(after.len());
        out.push((to, &after[..end]));
        rest = &after[end..];
    }
    out
}

fn is_of(parameters: &str, rel: &str) -> bool {
    parameters.split([';', ',']).any(|p| {
        let Some((name, value)) = p.split_once('=') else { return false };
        name.trim().eq_ignore_ascii_case("rel")
            && value.trim().trim_matches('"').split_ascii_whitespace().any(|r| r.eq_ignore_ascii_case(rel))
    })
}

/// Where a link leads, seen from a page.
///
/// # Errors
/// To another host, or nowhere.
pub(crate) fn beside(here: &str, to: &str) -> Result<String, String> {
    let here = url::Url::parse(here).map_err(|_| "the look-up's own address is not a URL".to_owned())?;
    let there =
        here.join(to).map_err(|_| "the look-up's next page is at something that is not a URL".to_owned())?;
    // A credential goes along.
    if here.origin() != there.origin() || !there.username().is_empty() || there.password().is_some() {
        return Err("the look-up's next page is at another host, which is not asked".into());
    }
    Ok(there.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn answer(link: &str) -> Answer {
        let mut headers = http::HeaderMap::new();
        headers.insert(http::header::LINK, link.parse().unwrap());
        Answer { status: 200, headers, body: bytes::Bytes::new() }
    }

    #[test]
    fn the_link_of_a_relation() {
        let a = answer(
            r#"<https://h/i?page=1&q=a,b>; rel="prev first", <https://h/i?page=3>; title="x"; rel=next, <https://h/i?page=9>; rel="last""#,
        );
        assert_eq!(link(&a, "next").as_deref(), Some("https://h/i?page=3"));
        assert_eq!(link(&a, "first").as_deref(), Some("https://h/i?page=1&q=a,b"));
        assert_eq!(link(&a, "up"), None);
        for broken in ["", "next", "<https://h", "<https://h>", r#"<https://h>; rel"#] {
            assert_eq!(link(&answer(broken), "next"), None, "{broken}");
        }
    }

    #[test]
    fn a_page_is_on_the_same_host() {
        let here = "https://h/a/i?x=1";
        assert_eq!(beside(here, "?page=2").unwrap(), "https://h/a/i?page=2");
        assert_eq!(beside(here, "/i?page=2").unwrap(), "https://h/i?page=2");
        for other in ["https://g/i", "http://h/i", "https://h:8443/i", "//g/i", "https://u@h/i", "data:x"] {
            assert!(beside(here, other).is_err(), "{other}");
        }
    }
}
