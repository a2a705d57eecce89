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
    assert_eq!(told(&[], &json!({ "result": { "items": [1] }, "next": "x" }), "/result/items"), Some(true));
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
        json!({ "data": [1], "has_more": null, "meta": { "isTruncated": "" } }),
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
        More { at, next, undivided, absent: Some(Absent::Unsaid) }.of(&a, body, "/data", 1)
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
        (json!({ "cursor": "x", "has_more": null }), Told::Further(None)),
        (json!({ "cursor": "x", "has_more": "" }), Told::Further(None)),
        (json!({ "cursor": "x", "has_more": 0 }), Told::Whole),
        (json!({ "has_more": true }), Told::Further(None)),
        (json!({ "has_more": null }), Told::Unsaid),
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
fn a_yes_or_no_by_its_absence_and_by_no_word() {
    let of = |at: &str, next: Option<&Next>, absent, body: &Value| {
        let a = Answer { status: 200, headers: http::HeaderMap::new(), body: bytes::Bytes::new() };
        More { at, next, undivided: false, absent }.of(&a, body, "/data", 1)
    };
    let by = |sign: &str| Told::Further(Some(sign.to_owned()));
    let cursor = Next::Cursor("/cursor".into(), "cursor".into());
    // The provider leaves a no out.
    let whole = Some(Absent::Whole);
    for (body, told) in [
        (json!({ "data": [1] }), Told::Whole),
        (json!({ "data": [1], "hasMore": null }), Told::Whole),
        (json!({ "data": [1], "hasMore": true }), Told::Further(None)),
        (json!({ "data": [1], "has_more": true }), by("has_more")),
        (json!({ "data": [1], "nextPage": 2 }), by("nextPage")),
        (json!({ "data": [1], "total": 2 }), Told::Whole),
    ] {
        assert_eq!(of("/hasMore", None, whole, &body), told, "{body}");
    }
    let body = json!({ "data": [1], "cursor": "x" });
    assert_eq!(of("/hasMore", Some(&cursor), whole, &body), Told::Further(None));
    // Without a word a no is outweighed at the root as it is deeper; by name it decides.
    for body in [
        json!({ "data": [1], "has_more": false, "next_page": "x" }),
        json!({ "data": [1], "has_more": null, "next_page": "x" }),
        json!({ "data": [1], "meta": { "has_more": false }, "next_page": "x" }),
    ] {
        assert_eq!(of(More::UNSAID, None, None, &body), by("next_page"), "{body}");
    }
    let body = json!({ "data": [1], "has_more": false, "next_page": "x" });
    assert_eq!(of(More::UNSAID, None, Some(Absent::Unsaid), &body), Told::Whole);
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
