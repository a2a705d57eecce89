//! Messages of a channel, as Slack's Web API has them: 200 to everything but rate limits, `ok` in the body, cursors.

use super::{Asked, Behaviour, Reply};
use serde_json::{Value, json};
use std::sync::Mutex;

#[derive(Default)]
pub struct Slack {
    /// When, text and metadata.
    pub messages: Mutex<Vec<(i64, String, Value)>>,
    pub lag: Mutex<i64>,
    /// Answers of the history before the ordinary ones.
    pub instead: Mutex<Vec<Reply>>,
    pub page: usize,
}

fn ts(at: i64) -> String {
    format!("{}.{:06}", at / 1000, (at % 1000) * 1000)
}

impl Behaviour for Slack {
    fn creates(&self, a: &Asked) -> bool {
        a.path == "/chat.postMessage"
    }

    fn answer(&self, a: &Asked, now: i64) -> Reply {
        assert_eq!(a.headers["authorization"], "Bearer token");
        if a.path == "/chat.postMessage" {
            assert_eq!(a.headers["content-type"], "application/json; charset=utf-8");
            let b = a.json();
            if b["channel"] != "C0123456789" {
                return Reply::of(200, &json!({ "ok": false, "error": "channel_not_found" }));
            }
            // Metadata needs both of its members.
            assert!(b["metadata"]["event_type"].is_string() && b["metadata"]["event_payload"].is_object());
            let text = b["text"].as_str().unwrap().to_owned();
            self.messages.lock().unwrap().push((now, text.clone(), b["metadata"].clone()));
            return Reply::of(
                200,
                &json!({ "ok": true, "channel": b["channel"], "ts": ts(now), "message": { "text": text } }),
            );
        }
        assert_eq!((&*a.method, &*a.path), ("GET", "/conversations.history"));
        if let Some(reply) = self.instead.lock().unwrap().pop() {
            return reply;
        }
        assert_eq!((&*a.query["channel"], &*a.query["include_all_metadata"]), ("C0123456789", "true"));
        let oldest: f64 = a.query["oldest"].parse().unwrap();
        let lag = *self.lag.lock().unwrap();
        let all = self.messages.lock().unwrap();
        let shown: Vec<Value> = all
            .iter()
            .rev()
            .filter(|(at, ..)| *at as f64 / 1000.0 > oldest && at + lag <= now)
            .map(|(at, text, metadata)| json!({ "type": "message", "ts": ts(*at), "text": text, "metadata": metadata }))
            .collect();
        let from =
            a.query.get("cursor").map_or(0, |c| c.strip_prefix("at:").unwrap().parse::<usize>().unwrap());
        let size = a.query["limit"].parse::<usize>().unwrap().min(self.page);
        let more = from + size < shown.len();
        let items: Vec<&Value> = shown.iter().skip(from).take(size).collect();
        let cursor = if more { format!("at:{}", from + size) } else { String::new() };
        Reply::of(
            200,
            &json!({ "ok": true, "messages": items, "has_more": more, "response_metadata": { "next_cursor": cursor } }),
        )
    }
}
