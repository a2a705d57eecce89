//! The recipes for providers without keys, against providers that behave as their published APIs say: an effect whose answer
//! was lost is found, one that was not applied is sent again, and where nobody can tell, nobody claims to.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod simulated;

use counterfoil_provider::Integration;
use serde_json::{Value, json};
use simulated::github::Github;
use simulated::gmail::Gmail;
use simulated::slack::Slack;
use simulated::{Fault, Outcome, Reply, Simulated, call, call_while, changed, now, pause, recipe};

const HOUR: i64 = 3_600_000;

fn of(o: &Outcome, word: &str, sends: u32) {
    assert_eq!((o.word.as_str(), o.sends), (word, sends), "{o:#?}");
}

// ---- GitHub -------------------------------------------------------------------------------------------------------

async fn github(page: usize) -> (Simulated<Github>, Integration) {
    let s = Simulated::start(Github { page, ..Github::default() }).await;
    s.does.host.lock().unwrap().clone_from(&s.base);
    let i = recipe("github-issue.md", "https://api.github.com", &s.base);
    (s, i)
}

fn issue() -> Value {
    json!({ "owner": "acme", "repo": "shop", "title": "Broken", "body": "It \"breaks\".\n-- 🦀" })
}

#[tokio::test]
async fn an_issue_bears_its_marker_where_nobody_sees_it() {
    let (s, i) = github(100).await;
    of(&call(&i, "issues.create", &issue()).await, "result", 1);
    let body = s.does.bodies().remove(0);
    let (own, marker) = body.split_once("\n\n<!-- counterfoil ").unwrap();
    assert_eq!(own, issue()["body"].as_str().unwrap());
    assert!(marker.len() == 36 + 4 && marker.ends_with(" -->"), "{body}");
    // Without a text there is the marker alone.
    let bare = json!({ "owner": "acme", "repo": "shop", "title": "Bare" });
    of(&call(&i, "issues.create", &bare).await, "result", 1);
    assert!(s.does.bodies()[1].starts_with("\n\n<!-- counterfoil "));
}

#[tokio::test]
async fn an_issue_whose_answer_was_lost_is_found() {
    for lag in [0, 80] {
        let (s, i) = github(100).await;
        *s.does.lag.lock().unwrap() = lag;
        s.next([Fault::LostReply]);
        let o = call(&i, "issues.create", &issue()).await;
        of(&o, "result", 1);
        assert!(o.text.contains("\"number\":1") && !o.several, "{o:?}");
        assert_eq!((s.does.bodies().len(), s.creations()), (1, 1), "lag {lag}");
    }
}

#[tokio::test]
async fn an_issue_that_was_not_opened_is_sent_again() {
    let (s, i) = github(100).await;
    s.does.add("Other", "of another", now() - 1000);
    s.next([Fault::LostRequest]);
    of(&call(&i, "issues.create", &issue()).await, "result", 2);
    assert_eq!((s.does.bodies().len(), s.creations()), (2, 2));
    // Unless the strategy says that nobody does.
    let never = changed("github-issue.md", "https://api.github.com", &s.base, |t| {
        t.replace("recovery = \"lookup\"", "recovery = \"none\"")
    });
    s.next([Fault::LostRequest]);
    of(&call(&never, "issues.create", &issue()).await, "in_doubt", 1);
    let doubt = changed("github-issue.md", "https://api.github.com", &s.base, |t| {
        t.replace("items = \"\"", "items = \"\"\nnot_found = \"in_doubt\"")
    });
    s.next([Fault::LostRequest]);
    let o = call(&doubt, "issues.create", &issue()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("proves nothing"), "{o:?}");
    assert_eq!(s.does.bodies().len(), 2);
}

#[tokio::test]
async fn the_marker_is_looked_for_on_all_pages_and_no_further() {
    let (s, i) = github(2).await;
    s.next([Fault::LostReply]);
    let more = async {
        // Other people open issues at the same time: it is on the third page by then.
        pause(5).await;
        for n in 0..5 {
            s.does.add(&format!("Later {n}"), "of another", now());
        }
    };
    of(&call_while(&i, "issues.create", &issue(), more).await, "result", 1);
    assert_eq!(s.creations(), 1);
    // Not found on five pages, and there is a sixth: nobody knows.
    let (s, i) = github(2).await;
    for n in 0..11 {
        s.does.add(&format!("Earlier {n}"), "of another", now());
    }
    s.next([Fault::LostRequest]);
    let o = call(&i, "issues.create", &issue()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("further pages"), "{o:?}");
    assert_eq!(s.creations(), 1);
}

#[tokio::test]
async fn what_is_older_than_the_intent_is_not_read() {
    let (s, i) = github(2).await;
    for n in 0..50 {
        s.does.add(&format!("Old {n}"), "of another", now() - 2 * HOUR);
    }
    s.next([Fault::LostRequest]);
    of(&call(&i, "issues.create", &issue()).await, "result", 2);
    let asked = s.seen.lock().unwrap();
    let since = asked.iter().find_map(|a| a.query.get("since")).unwrap();
    assert!(since.ends_with('Z') && since.len() == 20, "{since}");
}

#[tokio::test]
async fn clocks_that_differ_make_absence_no_proof() {
    for ahead in [-40 * 60_000, 40 * 60_000] {
        let (s, i) = github(100).await;
        *s.ahead.lock().unwrap() = ahead;
        s.next([Fault::LostRequest]);
        let o = call(&i, "issues.create", &issue()).await;
        of(&o, "in_doubt", 1);
        assert!(o.why.contains("clock"), "{o:?}");
        // What is there is found all the same.
        s.next([Fault::LostReply]);
        of(&call(&i, "issues.create", &issue()).await, "result", 1);
    }
    let (s, i) = github(100).await;
    *s.dateless.lock().unwrap() = true;
    s.next([Fault::LostRequest]);
    let o = call(&i, "issues.create", &issue()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("Date"), "{o:?}");
    let (s, i) = github(100).await;
    *s.ahead.lock().unwrap() = 20 * 60_000;
    s.next([Fault::LostRequest]);
    of(&call(&i, "issues.create", &issue()).await, "result", 2);
}

#[tokio::test]
async fn a_copied_marker_is_judged_honestly() {
    // Somebody quotes the issue in another one before it was looked for: there is one, and somebody should look.
    let (s, i) = github(100).await;
    *s.does.copied.lock().unwrap() =
        Some(|title, body| (format!("Re: {title}"), format!("> {body}\n\nSo it does.")));
    s.next([Fault::LostReply]);
    let o = call(&i, "issues.create", &issue()).await;
    of(&o, "result", 1);
    assert!(o.several && o.text.contains("\"number\":1"), "{o:?}");
    // The issue itself was renamed: it bears the marker and differs, so it is neither found nor absent.
    let (s, i) = github(100).await;
    *s.does.renamed.lock().unwrap() = Some("Works as intended".into());
    s.next([Fault::LostReply]);
    let o = call(&i, "issues.create", &issue()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("differs from what was sent"), "{o:?}");
    assert_eq!(s.creations(), 1);
    // A copy with the same title can't be told from it: one is taken, and somebody should look.
    let (s, i) = github(100).await;
    *s.does.copied.lock().unwrap() = Some(|title, body| (title.to_owned(), body.to_owned()));
    s.next([Fault::LostReply]);
    let o = call(&i, "issues.create", &issue()).await;
    of(&o, "result", 1);
    assert!(o.several && s.creations() == 1, "{o:?}");
}

#[tokio::test]
async fn rate_limits_wait_and_refusals_end_it() {
    let (s, i) = github(100).await;
    let limited = Reply::of(403, &json!({ "message": "You have exceeded a secondary rate limit" }));
    s.next([Fault::Instead(limited.clone().with("retry-after", "0"))]);
    of(&call(&i, "issues.create", &issue()).await, "result", 2);
    s.next([Fault::Instead(Reply::of(429, &json!({})).with("retry-after", "0"))]);
    of(&call(&i, "issues.create", &issue()).await, "result", 2);
    // Without Retry-After it is any other 403.
    s.next([Fault::Instead(Reply::of(403, &json!({ "message": "Resource not accessible" })))]);
    let o = call(&i, "issues.create", &issue()).await;
    of(&o, "refused", 1);
    assert!(o.text.contains("403 Forbidden"), "{o:?}");
    assert_eq!(s.does.bodies().len(), 2);
    // The question meets a limit: asked again, and found.
    s.next([Fault::LostReply]);
    *s.does.instead.lock().unwrap() = vec![limited.with("retry-after", "60"), Reply::of(502, &json!("no"))];
    of(&call(&i, "issues.create", &issue()).await, "result", 1);
    assert_eq!(s.does.bodies().len(), 3);
}

#[tokio::test]
async fn no_page_of_another_host_is_read() {
    let (s, i) = github(1).await;
    let other = Simulated::start(Github { page: 100, ..Github::default() }).await;
    *s.does.elsewhere.lock().unwrap() = Some(other.base.clone());
    s.does.add("A", "a", now());
    s.does.add("B", "b", now());
    s.next([Fault::LostRequest]);
    let o = call(&i, "issues.create", &issue()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("another host"), "{o:?}");
    assert!(other.seen.lock().unwrap().is_empty(), "the credential must not go there");
}

// ---- Slack --------------------------------------------------------------------------------------------------------

async fn slack(page: usize) -> (Simulated<Slack>, Integration) {
    let s = Simulated::start(Slack { page, ..Slack::default() }).await;
    let i = recipe("slack-message.md", "https://slack.com/api", &s.base);
    (s, i)
}

fn message() -> Value {
    json!({ "channel": "C0123456789", "text": "Deployed." })
}

fn posted(s: &Simulated<Slack>) -> usize {
    s.does.messages.lock().unwrap().len()
}

#[tokio::test]
async fn a_message_whose_answer_was_lost_is_found_on_whichever_page() {
    let (s, i) = slack(2).await;
    of(&call(&i, "messages.post", &message()).await, "result", 1);
    *s.does.lag.lock().unwrap() = 80;
    s.next([Fault::LostReply]);
    let others = async {
        pause(5).await;
        for n in 0..5 {
            s.does.messages.lock().unwrap().push((now(), format!("{n}"), Value::Null));
        }
    };
    let o = call_while(&i, "messages.post", &message(), others).await;
    of(&o, "result", 1);
    assert!(o.text.contains("Deployed."), "{o:?}");
    assert_eq!((s.creations(), posted(&s)), (2, 7));
    let asked = s.seen.lock().unwrap();
    let oldest = asked.iter().find_map(|a| a.query.get("oldest")).unwrap();
    assert!(oldest.bytes().all(|b| b.is_ascii_digit()), "{oldest}");
}

#[tokio::test]
async fn a_message_that_was_not_posted_is_sent_again() {
    let (s, i) = slack(200).await;
    s.next([Fault::LostRequest]);
    of(&call(&i, "messages.post", &message()).await, "result", 2);
    assert_eq!(posted(&s), 1);
}

#[tokio::test]
async fn a_200_that_says_no_is_a_refusal() {
    let (s, i) = slack(200).await;
    let elsewhere = json!({ "channel": "C9999999999", "text": "x" });
    let o = call(&i, "messages.post", &elsewhere).await;
    of(&o, "refused", 1);
    assert!(o.text.contains("channel_not_found") && o.text.contains("\"isError\":true"), "{o:?}");
    assert!(o.text.contains("The provider refused"), "{o:?}");
    // With these it may have been posted: it is looked for, and sent again where it is not.
    for code in ["fatal_error", "internal_error"] {
        let before = posted(&s);
        s.next([Fault::Instead(Reply::of(200, &json!({ "ok": false, "error": code })))]);
        of(&call(&i, "messages.post", &message()).await, "result", 2);
        assert_eq!(posted(&s), before + 1, "{code}");
    }
    // Nobody's word: neither yes nor no.
    for odd in [json!({}), json!({ "ok": "yes" }), json!([]), json!({ "ok": false })] {
        s.next([Fault::Instead(Reply::of(200, &odd))]);
        of(&call(&i, "messages.post", &message()).await, "result", 2);
    }
    // Limits: not applied, wait.
    s.next([
        Fault::Instead(
            Reply::of(429, &json!({ "ok": false, "error": "ratelimited" })).with("retry-after", "0"),
        ),
        Fault::Instead(
            Reply::of(200, &json!({ "ok": false, "error": "ratelimited" })).with("retry-after", "0"),
        ),
    ]);
    of(&call(&i, "messages.post", &message()).await, "result", 3);
}

#[tokio::test]
async fn a_question_that_is_refused_answers_nothing() {
    let (s, i) = slack(200).await;
    s.next([Fault::LostRequest]);
    let no =
        Reply::of(200, &json!({ "ok": false, "error": "missing_scope", "messages": [], "has_more": false }));
    *s.does.instead.lock().unwrap() = vec![no; 500];
    let o = call(&i, "messages.post", &message()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("missing_scope"), "{o:?}");
    assert_eq!((s.creations(), posted(&s)), (1, 0));
}

// ---- Mail ---------------------------------------------------------------------------------------------------------

async fn gmail(change: impl Fn(String) -> String) -> (Simulated<Gmail>, Integration) {
    let s = Simulated::start(Gmail::default()).await;
    let i = changed("mail.md", "https://gmail.googleapis.com", &s.base, |text| {
        change(text.replace("${file:/run/secrets/gmail-test}", "${env:GMAIL}"))
    });
    (s, i)
}

fn trusting(text: String) -> String {
    text.replace("not_found = \"in_doubt\"\n", "")
}

fn mail() -> Value {
    json!({ "from": "ops@example.com", "to": ["ada@example.org", "bo@example.org"], "subject": "Grüße", "text": "Hallo.\nBis bald." })
}

fn sent(s: &Simulated<Gmail>) -> usize {
    s.does.sent.lock().unwrap().len()
}

#[tokio::test]
async fn a_mail_is_named_by_its_effect() {
    let (s, i) = gmail(|t| t).await;
    of(&call(&i, "messages.send", &mail()).await, "result", 1);
    let (_, id, message) = s.does.sent.lock().unwrap().remove(0);
    assert!(id.len() == 36 + 2 + "@mail.example.com".len() && id.ends_with("@mail.example.com>"), "{id}");
    assert!(
        message.starts_with("From: ops@example.com\r\nTo: ada@example.org,\r\n bo@example.org\r\n"),
        "{message}"
    );
    assert!(message.contains("Subject: =?utf-8?B?R3LDvMOfZQ==?=\r\n"), "{message}");
    let (_, body) = message.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "SGFsbG8uDQpCaXMgYmFsZC4=\r\n");
}

#[tokio::test]
async fn a_mail_whose_answer_was_lost_is_found() {
    for change in [|t| t, trusting] {
        let (s, i) = gmail(change).await;
        of(&call(&i, "messages.send", &mail()).await, "result", 1);
        *s.does.lag.lock().unwrap() = 60;
        s.next([Fault::LostReply]);
        let o = call(&i, "messages.send", &mail()).await;
        of(&o, "result", 1);
        assert!(o.text.contains("\"id\":\"m1\""), "{o:?}");
        assert_eq!(sent(&s), 2);
        // A search that ignores what it is asked for: each mail is looked at.
        *s.does.finds_all.lock().unwrap() = true;
        s.next([Fault::LostReply]);
        of(&call(&i, "messages.send", &mail()).await, "result", 1);
        assert_eq!(sent(&s), 3);
    }
}

#[tokio::test]
async fn a_mail_that_is_not_found_is_sent_again_only_where_that_proves_something() {
    let (s, i) = gmail(|t| t).await;
    s.next([Fault::LostRequest]);
    of(&call(&i, "messages.send", &mail()).await, "in_doubt", 1);
    assert_eq!(sent(&s), 0);
    let (s, i) = gmail(trusting).await;
    s.next([Fault::LostRequest]);
    of(&call(&i, "messages.send", &mail()).await, "result", 2);
    assert_eq!(sent(&s), 1);
}

#[tokio::test]
async fn a_mailbox_that_renames_mails_gets_no_second_one() {
    let (s, i) = gmail(|t| t).await;
    *s.does.renames.lock().unwrap() = true;
    s.next([Fault::LostReply]);
    of(&call(&i, "messages.send", &mail()).await, "in_doubt", 1);
    assert_eq!(sent(&s), 1);
}

#[tokio::test]
async fn a_search_that_finds_too_much_says_nothing() {
    let (s, i) = gmail(trusting).await;
    for n in 0..11 {
        s.does.sent.lock().unwrap().push((0, format!("<{n}@x.y>"), String::new()));
    }
    *s.does.finds_all.lock().unwrap() = true;
    s.next([Fault::LostRequest]);
    let o = call(&i, "messages.send", &mail()).await;
    of(&o, "in_doubt", 1);
    assert!(o.why.contains("more than 10 objects"), "{o:?}");
}
