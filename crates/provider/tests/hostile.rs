//! Providers that break HTTP, and callers that leave early: every answer belongs to its own request, and what a kept
//! connection suffered while nobody used it costs the next request nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;
use common::{key, parse};
use counterfoil_provider::{ConfigCredentials, HttpExecutor, Integration, ReadOutcome};
use ledger::{Executor, Intent, Millis, Sent, Strategy};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a provider does on a connection, one after the other.
#[derive(Clone)]
enum Act {
    /// Reads one whole request.
    Read,
    /// Reads up to the end of a head.
    ReadHead,
    Write(String),
    Wait(u64),
    /// Ends its side, and goes on reading.
    HalfClose,
    /// Closes with a reset.
    Reset,
}
use Act::*;

/// One script for each connection, in the order of their coming; the last one for all that follow. A connection is closed
/// after its script.
struct Provider {
    base: String,
    /// Whole requests, each with the number of its connection.
    seen: Arc<Mutex<Vec<(usize, String)>>>,
}

async fn request(stream: &mut TcpStream, all: &mut Vec<u8>, head_only: bool) -> Option<String> {
    loop {
        if let Some(end) = all.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .map_or(0, |l| l.split("\r\n").next().unwrap().parse::<usize>().unwrap());
            let whole = end + 4 + if head_only { 0 } else { length };
            if all.len() >= whole {
                return Some(String::from_utf8_lossy(&all.drain(..whole).collect::<Vec<_>>()).into_owned());
            }
        }
        let mut buffer = [0; 4096];
        let n = stream.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
        all.extend_from_slice(&buffer[..n]);
    }
}

impl Provider {
    async fn start(scripts: Vec<Vec<Act>>) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all_seen = seen.clone();
        tokio::spawn(async move {
            for n in 0.. {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let script = scripts[n.min(scripts.len() - 1)].clone();
                let seen = all_seen.clone();
                tokio::spawn(async move {
                    let mut all = Vec::new();
                    for act in script {
                        match act {
                            Read | ReadHead => {
                                let head_only = matches!(act, ReadHead);
                                let Some(one) = request(&mut stream, &mut all, head_only).await else {
                                    return;
                                };
                                seen.lock().unwrap().push((n, one));
                            }
                            Write(text) => {
                                if stream.write_all(text.as_bytes()).await.is_err() {
                                    return;
                                }
                            }
                            Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                            HalfClose => stream.shutdown().await.unwrap(),
                            Reset => {
                                stream.set_zero_linger().unwrap();
                                return;
                            }
                        }
                    }
                });
            }
        });
        Provider { base, seen }
    }

    fn integration(&self) -> Integration {
        let base = &self.base;
        parse(&format!(
            "name = \"p\"\nbase_url = \"{base}\"\npreset = \"stripe\"\n[methods.m]\nhttp = \"POST /m/n\"\n\
             [methods.get]\nhttp = \"GET /m\"\n[methods.head]\nhttp = \"HEAD /m\"\neffect = \"read\"\n\
             [methods.base]\nhttp = \"GET /\""
        ))
        .unwrap()
    }

    fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The connections of the requests.
    fn connections(&self) -> Vec<usize> {
        self.seen.lock().unwrap().iter().map(|(n, _)| *n).collect()
    }
}

fn executor(i: &Integration) -> HttpExecutor {
    HttpExecutor::new(Arc::new(ConfigCredentials::load_with(std::slice::from_ref(i), |_| None).unwrap()))
}

fn intent(i: &Integration, args: &str) -> Intent {
    let m = i.method("m").unwrap();
    m.intent(args, &m.recovery(Some(Strategy::Key)).unwrap()).unwrap()
}

/// A whole answer that says which one it is.
fn answer(mark: &str) -> Act {
    Write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{{\"mark\":\"{mark}\"}}", mark.len() + 11))
}

const GOOD: &str = "good";

/// The script of a connection on which everything is well.
fn good() -> Vec<Act> {
    [Read, answer(GOOD)].into_iter().cycle().take(40).collect()
}

#[track_caller]
fn is_good(sent: &Sent) {
    match sent {
        Sent::Applied(receipt) => assert!(String::from_utf8_lossy(&receipt.0).contains(GOOD), "{receipt:?}"),
        other => panic!("{other:?}"),
    }
}

struct Stand {
    provider: Provider,
    x: HttpExecutor,
    intent: Intent,
    i: Integration,
}

impl Stand {
    async fn new(scripts: Vec<Vec<Act>>) -> Stand {
        let provider = Provider::start(scripts).await;
        let i = provider.integration();
        Stand { x: executor(&i), intent: intent(&i, "{}"), i, provider }
    }

    async fn send_within(&self, ms: i64) -> Sent {
        self.x.send(&self.intent, &key(), false, Millis(ms)).await
    }

    async fn send(&self) -> Sent {
        self.send_within(2000).await
    }
}

async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(60)).await;
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_nobodys() {
    let late = vec![Read, Wait(120), answer("late"), Read, answer("later")];
    let stand = Stand::new(vec![late, good()]).await;
    assert!(matches!(stand.send_within(60).await, Sent::Unknown { .. }));
    for _ in 0..3 {
        is_good(&stand.send().await);
        a_moment().await;
    }
    assert_eq!(stand.provider.connections(), [0, 1, 1, 1]);
}

#[tokio::test]
async fn an_answer_in_the_middle_of_its_body_at_the_deadline_is_nobodys() {
    let late = vec![
        Read,
        Write("HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"a\":".into()),
        Wait(120),
        Write("\"late\"}".into()),
        Read,
        answer("later"),
    ];
    let stand = Stand::new(vec![late, good()]).await;
    assert!(matches!(stand.send_within(60).await, Sent::Unknown { .. }));
    for _ in 0..3 {
        is_good(&stand.send().await);
        a_moment().await;
    }
    assert_eq!(stand.provider.connections(), [0, 1, 1, 1]);
}

#[tokio::test]
async fn an_answer_too_many_is_nobodys() {
    // With the first one, or while nobody waits for any.
    for wait in [0, 20] {
        for extra in [answer("extra"), Write("x".into())] {
            let twice = vec![Read, answer(GOOD), Wait(wait), extra, Read, answer("wrong")];
            let stand = Stand::new(vec![twice, good()]).await;
            is_good(&stand.send().await);
            a_moment().await;
            is_good(&stand.send().await);
            is_good(&stand.send().await);
            assert_eq!(stand.provider.connections(), [0, 1, 1], "after {wait} ms");
        }
    }
}

#[tokio::test]
async fn what_befalls_a_connection_that_waits_is_no_doubt_of_the_next_request() {
    let timeout = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let fates: [&[Act]; 5] = [
        &[],
        &[Reset],
        &[HalfClose, Read],
        &[Write(timeout.into())],
        &[Write(timeout.into()), HalfClose, Wait(10_000)],
    ];
    for (n, fate) in fates.iter().enumerate() {
        let first = [&[Read, answer(GOOD), Wait(10)], *fate].concat();
        let stand = Stand::new(vec![first, good()]).await;
        is_good(&stand.send().await);
        a_moment().await;
        is_good(&stand.send().await);
        assert_eq!(stand.provider.connections(), [0, 1], "fate {n}");
    }
}

#[tokio::test]
async fn an_end_that_was_announced_or_is_the_answers_end_is_the_connections() {
    let ends = [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 15\r\n\r\n{\"mark\":\"good\"}",
        "HTTP/1.0 200 OK\r\ncontent-length: 15\r\n\r\n{\"mark\":\"good\"}",
    ];
    for end in ends {
        // It stays open, and takes a request, as it must not.
        let stand = Stand::new(vec![vec![Read, Write(end.into()), Read, answer("wrong")], good()]).await;
        is_good(&stand.send().await);
        is_good(&stand.send().await);
        assert_eq!(stand.provider.connections(), [0, 1], "{end}");
    }
    let until = vec![Read, Write("HTTP/1.1 200 OK\r\n\r\n{\"mark\":\"good\"}".into())];
    let stand = Stand::new(vec![until, good()]).await;
    is_good(&stand.send().await);
    is_good(&stand.send().await);
}

#[tokio::test]
async fn an_upgrade_is_no_answer_and_the_end_of_its_connection() {
    let upgrade = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let stand = Stand::new(vec![vec![Read, Write(upgrade.into()), Read, answer("wrong")], good()]).await;
    assert!(matches!(stand.send().await, Sent::Unknown { .. }));
    is_good(&stand.send().await);
    assert_eq!(stand.provider.connections(), [0, 1]);
}

#[tokio::test]
async fn interim_answers_are_none() {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let first = vec![Read, Write(interim.into()), Wait(30), answer(GOOD), Read, answer(GOOD)];
    let stand = Stand::new(vec![first, good()]).await;
    is_good(&stand.send().await);
    is_good(&stand.send().await);
    assert_eq!(stand.provider.connections(), [0, 0]);
}

#[tokio::test]
async fn an_answer_without_a_body_leaves_its_connection_for_the_next() {
    let no_content = "HTTP/1.1 204 No Content\r\n\r\n";
    let stand = Stand::new(vec![vec![Read, Write(no_content.into()), Read, answer(GOOD)], good()]).await;
    assert!(matches!(stand.send().await, Sent::Applied(_)));
    is_good(&stand.send().await);
    assert_eq!(stand.provider.connections(), [0, 0]);
}

#[tokio::test]
async fn the_length_that_a_head_tells_of_is_not_read() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\nx-mark: good\r\n\r\n";
    let stand = Stand::new(vec![vec![Read, Write(head.into()), Read, answer(GOOD)], good()]).await;
    let read = stand.x.read(stand.i.method("head").unwrap(), "{}", Millis(2000)).await.unwrap();
    assert!(matches!(read, ReadOutcome::Answered(_)), "{read:?}");
    is_good(&stand.send().await);
    assert_eq!(stand.provider.connections(), [0, 0]);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_torn_and_its_connection_gone() {
    let torn = [
        "HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n{\"mark\":\"good\"}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nf\r\n{\"mark\":\"good\"}\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nf\r\n{\"mark\":\"good\"}\r\n0\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
    ];
    for text in torn {
        for end in [vec![], vec![Reset]] {
            let first = [vec![Read, Write(text.into())], end].concat();
            let stand = Stand::new(vec![first, good()]).await;
            let sent = stand.send().await;
            assert!(matches!(sent, Sent::Unknown { .. }), "{text}: {sent:?}");
            is_good(&stand.send().await);
            assert_eq!(stand.provider.connections(), [0, 1]);
        }
    }
}

#[tokio::test]
async fn an_answer_before_the_request_has_left_is_its_answer_alone() {
    let refused = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\n{}";
    for end in [vec![], vec![Wait(200)], vec![Wait(50), Read, answer("wrong"), Read, answer("wrong")]] {
        let first = [vec![ReadHead, Write(refused.into())], end].concat();
        let stand = Stand::new(vec![first, good()]).await;
        let large = intent(&stand.i, &format!("{{\"a\":\"{}\"}}", "x".repeat(8 << 20)));
        let sent = stand.x.send(&large, &key(), false, Millis(2000)).await;
        // A reset may overtake the answer; never is it something that was not sent.
        assert!(matches!(sent, Sent::Refused(_) | Sent::Unknown { .. }), "{sent:?}");
        for _ in 0..2 {
            is_good(&stand.send().await);
        }
        assert_eq!(stand.provider.connections(), [0, 1, 1]);
    }
}

#[tokio::test]
async fn the_answer_to_a_caller_that_left_is_nobodys() {
    for leaves in [0, 1, 5, 20, 40, 70] {
        let first = vec![
            Read,
            answer(GOOD),
            Read,
            Wait(30),
            Write("HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"mark\":".into()),
            Wait(30),
            Write("\"wrong\"} ".into()),
            Read,
            answer("wrong"),
        ];
        let stand = Stand::new(vec![first, good()]).await;
        is_good(&stand.send().await);
        let left = tokio::time::timeout(Duration::from_millis(leaves), stand.send()).await;
        if left.is_ok() {
            continue;
        }
        for _ in 0..2 {
            is_good(&stand.send().await);
            a_moment().await;
        }
        assert_eq!(stand.provider.requests(), 4);
    }
}

#[tokio::test]
async fn nothing_is_sent_once_the_time_is_over() {
    let stand = Stand::new(vec![good()]).await;
    is_good(&stand.send().await);
    let sent = stand.send_within(0).await;
    assert!(matches!(sent, Sent::NotSent { .. }), "{sent:?}");
    a_moment().await;
    assert_eq!(stand.provider.requests(), 1);
    // What was not used is still there.
    is_good(&stand.send().await);
    assert_eq!(stand.provider.connections(), [0, 0]);
}

#[tokio::test]
async fn a_caller_that_has_had_its_turn_still_gets_a_connection_that_is_open() {
    let stand = Stand::new(vec![vec![Read, answer(GOOD), Wait(20)], good()]).await;
    is_good(&stand.send().await);
    a_moment().await;
    // As a task that has done much: the runtime makes it look in vain, at whatever it looks, until its next turn.
    std::future::poll_fn(|cx| {
        while let std::task::Poll::Ready(turn) = tokio::task::coop::poll_proceed(cx) {
            turn.made_progress();
        }
        std::task::Poll::Ready(())
    })
    .await;
    is_good(&stand.send().await);
    assert_eq!(stand.provider.connections(), [0, 1]);
}

#[tokio::test]
async fn a_request_for_the_bare_host_asks_for_its_root() {
    let stand = Stand::new(vec![good()]).await;
    stand.x.read(stand.i.method("base").unwrap(), "{}", Millis(2000)).await.unwrap();
    stand.x.read(stand.i.method("get").unwrap(), "{}", Millis(2000)).await.unwrap();
    let seen = stand.provider.seen.lock().unwrap();
    assert!(seen[0].1.starts_with("GET / HTTP/1.1\r\n"), "{}", seen[0].1);
    assert!(seen[1].1.starts_with("GET /m HTTP/1.1\r\n"), "{}", seen[1].1);
}

/// A provider that tells each request its own name, some time later, and hangs up now and then.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut all = Vec::new();
                while let Some(one) = request(&mut stream, &mut all, false).await {
                    let name =
                        one.split("\"name\":\"").nth(1).unwrap().trim_end_matches(['"', '}']).to_owned();
                    let n: u64 = name.parse().unwrap();
                    tokio::time::sleep(Duration::from_millis(n * 7 % 31)).await;
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", name.len() + 11);
                    stream.write_all(head.as_bytes()).await.ok();
                    if n.is_multiple_of(4) {
                        tokio::time::sleep(Duration::from_millis(n * 5 % 23)).await;
                    }
                    stream.write_all(format!("{{\"mark\":\"{name}\"}}").as_bytes()).await.ok();
                    if n.is_multiple_of(9) {
                        return;
                    }
                }
            });
        }
    });
    base
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_that_of_its_own_request() {
    let base = echo().await;
    let i = parse(&format!(
        "name = \"p\"\nbase_url = \"{base}\"\npreset = \"stripe\"\n[methods.m]\nhttp = \"POST /m/n\""
    ))
    .unwrap();
    let x = executor(&i);
    let workers: Vec<_> = (0..40_u64)
        .map(|worker| {
            let (x, i) = (x.clone(), i.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                for turn in 0..12 {
                    let n = worker * 12 + turn;
                    let intent = intent(&i, &format!("{{\"name\":\"{n}\"}}"));
                    // A third is told to be quick, a third leaves.
                    let within = Millis(if n % 3 == 1 { 15 } else { 5000 });
                    let leaves = Duration::from_millis(if n % 3 == 2 { n % 17 } else { 5000 });
                    let key = key();
                    let sent = tokio::time::timeout(leaves, x.send(&intent, &key, false, within)).await;
                    if let Ok(Sent::Applied(receipt)) = sent {
                        let text = String::from_utf8_lossy(&receipt.0).into_owned();
                        assert!(text.contains(&format!("\"mark\":\"{n}\"")), "{n} got {text}");
                        answered += 1;
                    }
                }
                answered
            })
        })
        .collect();
    let mut answered = 0;
    for worker in workers {
        answered += worker.await.unwrap();
    }
    assert!(answered >= 40 * 12 / 4, "{answered} answers");
}
