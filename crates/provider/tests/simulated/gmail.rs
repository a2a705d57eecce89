//! A mailbox, as Gmail's API has it: a message goes in whole, the search names messages and no more, and an empty one has no
//! list.

use super::{Asked, Behaviour, Reply};
use serde_json::{Value, json};
use std::sync::Mutex;

#[derive(Default)]
pub struct Gmail {
    /// When, the Message-ID, and the message.
    pub sent: Mutex<Vec<(i64, String, String)>>,
    pub lag: Mutex<i64>,
    /// It writes a Message-ID of its own.
    pub renames: Mutex<bool>,
    /// The search doesn't know the operator, and finds everything.
    pub finds_all: Mutex<bool>,
}

fn header<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let (head, _) = message.split_once("\r\n\r\n")?;
    head.split("\r\n").find_map(|l| l.strip_prefix(&format!("{name}: ")))
}

impl Behaviour for Gmail {
    fn creates(&self, a: &Asked) -> bool {
        a.method == "POST"
    }

    fn answer(&self, a: &Asked, now: i64) -> Reply {
        assert_eq!(a.headers["authorization"], "Bearer token");
        let lag = *self.lag.lock().unwrap();
        let mut sent = self.sent.lock().unwrap();
        if a.method == "POST" {
            assert_eq!(
                (&*a.path, &*a.query["uploadType"]),
                ("/upload/gmail/v1/users/me/messages/send", "media")
            );
            assert_eq!(a.headers["content-type"], "message/rfc822");
            let message = String::from_utf8(a.body.clone()).unwrap();
            assert!(header(&message, "From").is_some() && header(&message, "To").is_some());
            let own = header(&message, "Message-ID").unwrap().to_owned();
            let n = sent.len();
            let id = if *self.renames.lock().unwrap() { format!("<CA{n}@mail.gmail.com>") } else { own };
            sent.push((now, id, message));
            return Reply::of(
                200,
                &json!({ "id": format!("m{n}"), "threadId": format!("t{n}"), "labelIds": ["SENT"] }),
            );
        }
        if a.path == "/gmail/v1/users/me/messages" {
            let wanted = a.query["q"].strip_prefix("rfc822msgid:").unwrap();
            let all = *self.finds_all.lock().unwrap();
            let found: Vec<Value> = sent
                .iter()
                .enumerate()
                .filter(|(_, (at, id, _))| at + lag <= now && (all || *id == format!("<{wanted}>")))
                .map(|(n, _)| json!({ "id": format!("m{n}"), "threadId": format!("t{n}") }))
                .collect();
            return Reply::of(
                200,
                &if found.is_empty() {
                    json!({ "resultSizeEstimate": 0 })
                } else {
                    json!({ "messages": found, "resultSizeEstimate": found.len() })
                },
            );
        }
        let n: usize = a.path.strip_prefix("/gmail/v1/users/me/messages/m").unwrap().parse().unwrap();
        assert_eq!((&*a.query["format"], &*a.query["metadataHeaders"]), ("metadata", "Message-ID"));
        let (_, id, _) = &sent[n];
        Reply::of(
            200,
            &json!({ "id": format!("m{n}"), "labelIds": ["SENT"], "payload": { "headers": [{ "name": "Message-ID", "value": id }] } }),
        )
    }
}
