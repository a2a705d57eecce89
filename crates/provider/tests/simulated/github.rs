//! Issues of a repository, as GitHub's REST API has them: a bare array, newest first, pages in the `Link` header, `since` by
//! the time of the last change, rate limits as 403 and 429.

use super::{Asked, Behaviour, Reply};
use serde_json::{Value, json};
use std::sync::Mutex;

#[derive(Clone, Debug)]
pub struct Issue {
    pub number: usize,
    pub title: String,
    pub body: String,
    pub updated: i64,
    /// When it begins to be listed.
    pub listed_at: i64,
}

/// A copy's title and text, of an issue's.
pub type Copied = fn(&str, &str) -> (String, String);

#[derive(Default)]
pub struct Github {
    pub issues: Mutex<Vec<Issue>>,
    /// How long a new issue is not listed, in milliseconds.
    pub lag: Mutex<i64>,
    /// Answers of the list before the ordinary ones.
    pub instead: Mutex<Vec<Reply>>,
    pub host: Mutex<String>,
    /// Where the next page is said to be, if elsewhere.
    pub elsewhere: Mutex<Option<String>>,
    /// What somebody makes of a new issue as soon as it is there: another one's title and text.
    pub copied: Mutex<Option<Copied>>,
    /// What somebody calls it as soon as it is there.
    pub renamed: Mutex<Option<String>>,
    /// A page holds no more, whatever is asked for.
    pub page: usize,
}

impl Github {
    pub fn add(&self, title: &str, body: &str, at: i64) -> usize {
        let mut all = self.issues.lock().unwrap();
        let number = all.len() + 1;
        let lag = *self.lag.lock().unwrap();
        all.push(Issue { number, title: title.into(), body: body.into(), updated: at, listed_at: at + lag });
        number
    }
    pub fn bodies(&self) -> Vec<String> {
        self.issues.lock().unwrap().iter().map(|i| i.body.clone()).collect()
    }
}

fn object(i: &Issue) -> Value {
    json!({ "id": 1000 + i.number, "number": i.number, "title": i.title, "body": i.body, "state": "open", "user": { "login": "bot" } })
}

fn rfc3339(text: &str) -> i64 {
    let form = time::format_description::well_known::Rfc3339;
    let at = time::OffsetDateTime::parse(text, &form).unwrap();
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap()
}

impl Behaviour for Github {
    fn creates(&self, a: &Asked) -> bool {
        a.method == "POST"
    }

    fn answer(&self, a: &Asked, now: i64) -> Reply {
        assert_eq!(a.headers["authorization"], "Bearer token");
        assert_eq!(a.path, "/repos/acme/shop/issues");
        if a.method == "POST" {
            let body = a.json();
            let given = body["body"].as_str().unwrap_or_default().to_owned();
            let title = body["title"].as_str().unwrap();
            let number = self.add(title, &given, now);
            if let Some(copy) = *self.copied.lock().unwrap() {
                let (title, text) = copy(title, &given);
                self.add(&title, &text, now);
            }
            if let Some(title) = self.renamed.lock().unwrap().take() {
                self.issues.lock().unwrap()[number - 1].title = title;
            }
            return Reply::of(201, &object(&self.issues.lock().unwrap()[number - 1]));
        }
        if let Some(reply) = self.instead.lock().unwrap().pop() {
            return reply;
        }
        assert_eq!(
            (&*a.query["state"], &*a.query["sort"], &*a.query["direction"]),
            ("all", "created", "desc")
        );
        let since = rfc3339(&a.query["since"]);
        let all = self.issues.lock().unwrap();
        let shown: Vec<Value> =
            all.iter().rev().filter(|i| i.updated >= since && i.listed_at <= now).map(object).collect();
        let size = a.query["per_page"].parse::<usize>().unwrap().min(self.page);
        let page = a.query.get("page").map_or(1, |p| p.parse::<usize>().unwrap());
        let from = (page - 1) * size;
        let items: Vec<Value> = shown.iter().skip(from).take(size).cloned().collect();
        let reply = Reply::of(200, &json!(items));
        if from + size >= shown.len() {
            return reply;
        }
        let host =
            self.elsewhere.lock().unwrap().clone().unwrap_or_else(|| self.host.lock().unwrap().clone());
        let since = a.query["since"].replace(':', "%3A");
        let to = |n: usize| {
            format!(
                "<{host}{}?state=all&sort=created&direction=desc&per_page=100&since={since}&page={n}>",
                a.path
            )
        };
        reply.with("link", &format!("{}; rel=\"next\", {}; rel=\"last\"", to(page + 1), to(99)))
    }
}
