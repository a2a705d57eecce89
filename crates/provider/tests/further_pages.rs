//! A provider that ignores the filter of a look-up and shows its first page must never look like one that has nothing: whatever
//! way it tells of further pages, or none, nothing is sent a second time.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
mod simulated;

use common::parse;
use counterfoil_provider::Integration;
use futures_util::future::join_all;
use serde_json::{Value, json};
use simulated::{Asked, Behaviour, Fault, Outcome, Reply, Simulated, call};
use std::sync::Mutex;

/// Tickets, the oldest first, a page at a time, whatever is asked for.
struct Desk {
    /// How a page is written: its tickets, and whether there are more.
    page: fn(&[Value], usize) -> Reply,
    tickets: Mutex<Vec<Value>>,
}

const PAGE: usize = 3;

impl Behaviour for Desk {
    fn creates(&self, asked: &Asked) -> bool {
        asked.method == "POST"
    }
    fn answer(&self, asked: &Asked, _: i64) -> Reply {
        let mut all = self.tickets.lock().unwrap();
        if self.creates(asked) {
            all.push(asked.json());
            return Reply::of(200, &asked.json());
        }
        (self.page)(&all, all.len())
    }
}

async fn desk(others: usize, page: fn(&[Value], usize) -> Reply) -> Simulated<Desk> {
    let tickets = (0..others).map(|n| json!({ "id": n, "metadata": { "marker": "another's" } }));
    Simulated::start(Desk { page, tickets: Mutex::new(tickets.collect()) }).await
}

fn manifest(base: &str, more: &str) -> Integration {
    parse(&format!(
        "name = \"p\"\nbase_url = \"{base}\"\n[execution_policy.retries]\ninitial_backoff = \"5ms\"\nmax_backoff = \"40ms\"\n[methods.create]\nhttp = \"POST /v2/tickets\"\nmarker = {{ field = \"metadata.marker\" }}\n[methods.create.lookup]\nhttp = \"GET /v2/tickets\"\nquery = {{ marker = \"{{marker}}\", limit = \"{PAGE}\" }}\nitems = \"/data\"\nmatch = {{ \"/metadata/marker\" = \"{{marker}}\" }}\n{more}\nvisibility_lag = \"60ms\"\nprocessing_bound = \"60ms\"\n"
    ))
    .unwrap()
}

async fn lost<B: Behaviour>(s: &Simulated<B>, more: &str, fault: Fault) -> Outcome {
    s.next([fault]);
    call(&manifest(&s.base, more), "create", &json!({ "subject": "Broken" })).await
}

fn first(all: &[Value]) -> &[Value] {
    &all[..all.len().min(PAGE)]
}

/// Every way to tell of further pages, and none.
const WAYS: [fn(&[Value], usize) -> Reply; 11] = [
    |all, n| {
        Reply::of(
            200,
            &json!({ "data": first(all), "next_cursor": if n > PAGE { json!("c") } else { Value::Null } }),
        )
    },
    |all, n| {
        let page = Reply::of(200, &json!({ "data": first(all) }));
        if n > PAGE { page.with("Link", "</v2/tickets?page=2>; rel=\"next\"") } else { page }
    },
    |all, n| Reply::of(200, &json!({ "data": first(all), "hasMore": n > PAGE })),
    |all, n| Reply::of(200, &json!({ "data": first(all), "total": n })),
    |all, n| {
        Reply::of(
            200,
            &json!({ "data": first(all), "meta": { "pagination": { "total_pages": n.div_ceil(PAGE) } } }),
        )
    },
    |all, n| {
        Reply::of(
            200,
            &json!({ "data": first(all), "links": { "next": (n > PAGE).then_some("/v2/tickets?page=2") } }),
        )
    },
    |all, n| Reply::of(200, &json!({ "data": first(all) })).with("X-Total-Count", &n.to_string()),
    |all, n| {
        Reply::of(
            200,
            &json!({ "data": first(all), "paging": { "next": { "after": (n > PAGE).then_some("x") } } }),
        )
    },
    |all, n| Reply::of(200, &json!({ "data": first(all), "nextPageToken": if n > PAGE { "t" } else { "" } })),
    // These say nothing.
    |all, _| Reply::of(200, &json!({ "data": first(all) })),
    |all, _| Reply::of(200, &json!({ "data": first(all), "object": "list", "limit": PAGE })),
];

#[tokio::test]
async fn a_first_page_of_others_is_no_proof() {
    let each = WAYS.into_iter().enumerate().map(async |(n, way)| {
        // Applied, and on the second page; not applied, which nobody can tell from it.
        for fault in [Fault::LostReply, Fault::LostRequest] {
            let s = desk(5, way).await;
            let o = lost(&s, "", fault).await;
            assert_eq!((o.word.as_str(), o.sends), ("in_doubt", 1), "{n}: {o:#?}");
            assert!(o.why.contains("further pages"), "{n}: {o:?}");
            assert_eq!(s.creations(), 1, "{n}");
        }
    });
    join_all(each).await;
}

#[tokio::test]
async fn nothing_at_all_and_the_effect_itself_are_proof() {
    let each = WAYS.into_iter().enumerate().map(async |(n, way)| {
        let s = desk(0, way).await;
        let o = lost(&s, "", Fault::LostRequest).await;
        assert_eq!((o.word.as_str(), o.sends, s.creations()), ("result", 2, 2), "{n}: {o:#?}");
        let s = desk(1, way).await;
        let o = lost(&s, "", Fault::LostReply).await;
        assert_eq!((o.word.as_str(), o.sends, s.creations()), ("result", 1, 1), "{n}: {o:#?}");
    });
    join_all(each).await;
}

#[tokio::test]
async fn a_list_that_says_that_it_is_whole_is_proof() {
    let each = WAYS.into_iter().enumerate().map(async |(n, way)| {
        let s = desk(1, way).await;
        let o = lost(&s, "", Fault::LostRequest).await;
        // By a link or a count that is absent or equal, nothing is said.
        let says = [0, 2, 4, 5, 7, 8].contains(&n);
        assert_eq!((o.word == "result", o.sends), (says, if says { 2 } else { 1 }), "{n}: {o:#?}");
        assert!(says || o.why.contains("does not say"), "{o:?}");
    });
    join_all(each).await;
}

#[tokio::test]
async fn what_the_manifest_names_decides() {
    // With the word for it each of them is proof.
    for (n, more) in [
        (0, "more = \"/next_cursor\""),
        (1, "next = { link = \"next\" }"),
        (2, "more = \"/hasMore\""),
        (5, "more = \"/links/next\""),
        (8, "next = { at = \"/nextPageToken\", query = \"page\" }"),
        (9, "more = false"),
        (3, "more = false"),
    ] {
        let s = desk(1, WAYS[n]).await;
        let o = lost(&s, more, Fault::LostRequest).await;
        assert_eq!((o.word.as_str(), o.sends), ("result", 2), "{n} {more}: {o:#?}");
    }
    // What it names is not there, and something else tells of more.
    let misled = [
        (0, "more = \"/nextCursor\""),
        (1, "more = \"/next\""),
        (2, "more = \"/has_more\""),
        (2, "next = { link = \"next\" }"),
        (8, "next = { at = \"/next_page_token\", query = \"page\" }"),
        (1, "more = false"),
        (2, "more = false"),
        // A yes or no that is missing says nothing.
        (9, "more = \"/hasMore\""),
        (9, "more = \"/meta/is_truncated\""),
        // Left out by the manifest's word, and something else tells of more.
        (1, "more = { at = \"/hasMore\", absent = \"whole\" }"),
        (0, "more = { at = \"/hasMore\", absent = \"whole\" }"),
    ];
    let each = misled.into_iter().map(async |(n, more)| {
        let s = desk(5, WAYS[n]).await;
        let o = lost(&s, more, Fault::LostReply).await;
        assert_eq!((o.word.as_str(), o.sends, s.creations()), ("in_doubt", 1, 1), "{n} {more}: {o:#?}");
    });
    join_all(each).await;
}

/// Tickets whose pages can be asked for.
struct Pager {
    /// How a page is written: its tickets, its number, and how many there are.
    page: fn(&[Value], usize, usize) -> Reply,
    tickets: Mutex<Vec<Value>>,
}

impl Behaviour for Pager {
    fn creates(&self, asked: &Asked) -> bool {
        asked.method == "POST"
    }
    fn answer(&self, asked: &Asked, _: i64) -> Reply {
        let mut all = self.tickets.lock().unwrap();
        if self.creates(asked) {
            all.push(asked.json());
            return Reply::of(200, &asked.json());
        }
        let number = asked.query.get("page").map_or(1, |n| n.parse().unwrap());
        let page = all.chunks(PAGE).nth(number - 1).unwrap_or_default();
        (self.page)(page, number, all.len().div_ceil(PAGE))
    }
}

async fn paged(others: usize, page: fn(&[Value], usize, usize) -> Reply) -> Simulated<Pager> {
    let tickets = (0..others).map(|n| json!({ "id": n, "metadata": { "marker": "another's" } }));
    Simulated::start(Pager { page, tickets: Mutex::new(tickets.collect()) }).await
}

/// A page, with its successor's number under a name on all pages but the last, and more beside it.
fn with_next(page: &[Value], next: Option<(&str, usize)>, beside: &Value) -> Reply {
    let mut all = json!({ "data": page });
    let members = all.as_object_mut().unwrap();
    members.extend(beside.as_object().unwrap().clone());
    members.extend(next.map(|(name, number)| (name.to_owned(), json!(number.to_string()))));
    Reply::of(200, &all)
}

fn after(name: &'static str, number: usize, all: usize) -> Option<(&'static str, usize)> {
    (number < all).then_some((name, number + 1))
}

#[tokio::test]
async fn a_cursor_that_is_there_tells_of_a_page_whatever_is_missing() {
    let way = |page: &[Value], n, all| with_next(page, after("cursor", n, all), &json!({}));
    let more = "more = \"/has_more\"\nnext = { at = \"/cursor\", query = \"page\" }";
    // The effect would be on the third page, and two are read.
    for fault in [Fault::LostReply, Fault::LostRequest] {
        let s = paged(7, way).await;
        let o = lost(&s, more, fault).await;
        assert_eq!((o.word.as_str(), o.sends, s.creations()), ("in_doubt", 1, 1), "{o:#?}");
        assert!(o.why.contains("has further pages,"), "{o:?}");
    }
    let s = paged(7, way).await;
    let o = lost(&s, &format!("{more}\npages = 5"), Fault::LostReply).await;
    assert_eq!((o.word.as_str(), o.sends, s.creations()), ("result", 1, 1), "{o:#?}");
    // On the last page the yes or no is missing, and nothing takes its place.
    let s = paged(7, way).await;
    let o = lost(&s, &format!("{more}\npages = 5"), Fault::LostRequest).await;
    assert_eq!((o.word.as_str(), o.sends), ("in_doubt", 1), "{o:#?}");
}

/// A page with a cursor, and a yes or no that is null in place of both.
#[tokio::test]
async fn a_null_is_no_no() {
    let way = |page: &[Value], n, all| with_next(page, after("cursor", n, all), &json!({ "has_more": null }));
    let more = "more = \"/has_more\"\nnext = { at = \"/cursor\", query = \"page\" }";
    // The effect is on the second page.
    let s = paged(4, way).await;
    let o = lost(&s, more, Fault::LostReply).await;
    assert_eq!((o.word.as_str(), o.sends, s.creations()), ("result", 1, 1), "{o:#?}");
    // By no word it is a sign of no end, either.
    let s =
        paged(4, |page, n, all| with_next(page, after("next_page", n, all), &json!({ "has_more": null })))
            .await;
    let o = lost(&s, "", Fault::LostReply).await;
    assert_eq!((o.word.as_str(), o.sends, s.creations()), ("in_doubt", 1, 1), "{o:#?}");
}

/// Go and proto3 leave a no out.
#[tokio::test]
async fn a_no_that_is_left_out_can_be_said() {
    let way = |page: &[Value], n, all| {
        with_next(page, None, &if n < all { json!({ "hasMore": true }) } else { json!({}) })
    };
    let s = paged(1, way).await;
    let o = lost(&s, "more = \"/hasMore\"", Fault::LostRequest).await;
    assert_eq!((o.word.as_str(), o.sends), ("in_doubt", 1), "{o:#?}");
    assert!(o.why.contains("more = { at = \"/hasMore\", absent = \"whole\" }"), "{o:?}");
    let said = "more = { at = \"/hasMore\", absent = \"whole\" }";
    for (others, fault, becomes) in [
        (1, Fault::LostRequest, ("result", 2, 2)),
        (1, Fault::LostReply, ("result", 1, 1)),
        (5, Fault::LostReply, ("in_doubt", 1, 1)),
    ] {
        let s = paged(others, way).await;
        let o = lost(&s, said, fault).await;
        assert_eq!((o.word.as_str(), o.sends, s.creations()), becomes, "{others}: {o:#?}");
    }
}

#[tokio::test]
async fn what_stands_on_every_page_is_no_next_page() {
    let cursor = "next = { at = \"/cursor\", query = \"page\" }";
    type Way = fn(&[Value], usize, usize) -> Reply;
    let ways: [(usize, &str, Way); 6] = [
        // GitLab: how many pages there are, on each of them.
        (5, "next = { link = \"next\" }", |page, n, all| {
            let reply = Reply::of(200, &json!({ "data": page })).with("X-Total-Pages", &all.to_string());
            let link = format!("</v2/tickets?page={}>; rel=\"next\"", n + 1);
            if n < all { reply.with("Link", &link) } else { reply }
        }),
        (5, cursor, |page, n, all| {
            with_next(page, after("cursor", n, all), &json!({ "meta": { "total_pages": all } }))
        }),
        // Google: where to go on with changes, on the last page.
        (5, "next = { at = \"/nextPageToken\", query = \"page\" }", |page, n, all| {
            let sync = if n < all { json!({}) } else { json!({ "nextSyncToken": "s" }) };
            with_next(page, after("nextPageToken", n, all), &sync)
        }),
        (5, cursor, |page, n, all| {
            with_next(page, after("cursor", n, all), &json!({ "next_billing_date": "2027-01-01" }))
        }),
        // Mailgun: a link to the next page on each page.
        (2, "more = false", |page, _, _| {
            with_next(page, None, &json!({ "paging": { "next": "https://h/x" } }))
        }),
        // LinkedIn: the size of a page.
        (0, "", |page, _, _| {
            with_next(page, None, &json!({ "paging": { "start": 0, "count": 10, "links": [] } }))
        }),
    ];
    let each = ways.into_iter().enumerate().map(async |(n, (others, more, way))| {
        let more = if more.starts_with("next") { format!("{more}\npages = 5") } else { more.to_owned() };
        let s = paged(others, way).await;
        let o = lost(&s, &more, Fault::LostRequest).await;
        assert_eq!((o.word.as_str(), o.sends, s.creations()), ("result", 2, 2), "{n}: {o:#?}");
        let s = paged(others, way).await;
        let o = lost(&s, &more, Fault::LostReply).await;
        assert_eq!((o.word.as_str(), o.sends, s.creations()), ("result", 1, 1), "{n}: {o:#?}");
    });
    join_all(each).await;
}

#[tokio::test]
async fn the_reason_names_the_sign() {
    let s = paged(2, |page, _, _| with_next(page, None, &json!({ "next_billing_date": "2027-01-01" }))).await;
    let o = lost(&s, "", Fault::LostRequest).await;
    assert_eq!((o.word.as_str(), o.sends), ("in_doubt", 1), "{o:#?}");
    assert!(o.why.contains("by `next_billing_date`") && o.why.contains("`more` or `next`"), "{o:?}");
}

#[test]
fn a_word_that_makes_no_sense_is_refused() {
    let refused = |more: &str| {
        let text = format!(
            "name = \"p\"\nbase_url = \"http://127.0.0.1:1\"\n[methods.m]\nhttp = \"POST /m\"\nmarker = {{ field = \"x\" }}\nlookup = {{ match = {{ \"/x\" = \"{{marker}}\" }}, {more} }}\n"
        );
        parse(&text).unwrap_err().to_string()
    };
    for (more, words) in [
        ("items = \"/d\", more = true", "as a JSON pointer"),
        ("items = \"/d\", more = \"x\"", "is not a JSON pointer"),
        ("items = \"/d\", more = false, next = { link = \"next\" }", "no further pages"),
        ("items = \"/d\", more = 5", "a JSON pointer, { at, absent }, or false"),
        ("more = false", "there is no `items`"),
        ("more = { at = \"/m\", absent = \"whole\" }", "there is no `items`"),
        ("items = \"/d\", more = { at = \"m\", absent = \"whole\" }", "is not a JSON pointer"),
        ("items = \"/d\", more = { at = \"/m\", absent = \"none\" }", "known: unsaid, whole"),
        ("items = \"/d\", more = { at = \"/m\" }", "absent"),
    ] {
        let said = refused(more);
        assert!(said.contains(words), "{more}\n{said}");
    }
}
