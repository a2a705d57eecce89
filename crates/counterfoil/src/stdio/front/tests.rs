#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, ReadHalf};
use tokio::net::{UnixListener, UnixStream};

fn reach(config: Config) -> Reach {
    Reach { config, listen: false, api_key: None, native: crate::native::Native::default() }
}

/// Reads one line as JSON.
async fn line<R: AsyncRead + Unpin>(reader: &mut BufReader<R>) -> Value {
    let mut text = String::new();
    tokio::time::timeout(Duration::from_secs(10), reader.read_line(&mut text)).await.unwrap().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A process that holds the ledger, as far as a front can tell.
async fn accept(listener: &UnixListener) -> BufReader<UnixStream> {
    let (stream, _) =
        tokio::time::timeout(Duration::from_secs(10), listener.accept()).await.unwrap().unwrap();
    let mut stream = BufReader::new(stream);
    let terms = json!({ "counterfoil": 1, "auth": "none", "mode": "sandbox", "name": "counterfoil" });
    let mut said = line(&mut stream).await;
    assert_eq!(said, terms);
    said["ok"] = json!(true);
    stream.write_all(format!("{said}\n").as_bytes()).await.unwrap();
    stream
}

async fn ask(client: &mut BufReader<DuplexStream>, id: u64) {
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
    client.write_all(format!("{request}\n").as_bytes()).await.unwrap();
}

#[tokio::test]
async fn requests_that_reach_nobody_are_answered_and_the_next_backend_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    // Somebody has the ledger all the time, and serves others most of it.
    let lock = std::fs::File::create(data.join("ledger.lock")).unwrap();
    lock.lock().unwrap();
    let socket = data.join("mcp.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut config = Config::sandbox(&data);
    config.sandbox = Some(([127, 0, 0, 1], 0).into());
    let (near, far) = tokio::io::duplex(4096);
    let (reader, writer): (ReadHalf<DuplexStream>, _) = tokio::io::split(far);
    let (_tell, reload) = mpsc::channel(1);
    let stop = std::future::pending();
    let load = || Ok(Config::sandbox("unused".as_ref()));
    let client = Client { reader, writer, stop, reload, load };
    let front = pump(reach(config), client, Duration::from_millis(300));
    let host = async {
        let mut client = BufReader::new(near);
        let mut backend = accept(&listener).await;
        ask(&mut client, 1).await;
        assert_eq!(line(&mut backend).await["id"], 1);
        drop((backend, listener));
        std::fs::remove_file(&socket).unwrap();
        let told = line(&mut client).await;
        assert_eq!((&told["id"], &told["error"]["data"]["kind"]), (&json!(1), &json!("unavailable")));
        // One that comes meanwhile has its own time to wait.
        ask(&mut client, 2).await;
        let listener = UnixListener::bind(&socket).unwrap();
        let mut backend = accept(&listener).await;
        assert_eq!(line(&mut backend).await["id"], 2);
        backend.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n").await.unwrap();
        assert_eq!(line(&mut client).await["id"], 2);
        client.shutdown().await.unwrap();
        let mut rest = String::new();
        assert_eq!(client.read_line(&mut rest).await.unwrap(), 0, "{rest}");
    };
    let (ended, ()) = tokio::join!(front, host);
    ended.unwrap();
}

#[tokio::test]
async fn what_is_no_counterfoil_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("mcp.sock")).unwrap();
    for (says, expected) in [
        ("{\"hello\":1}\n", "of another version"),
        ("{\"counterfoil\":2,\"ok\":true}\n", "of another version"),
        ("{\"counterfoil\":1,\"ok\":false,\"error\":\"no\"}\n", "no"),
        ("{\"counterfoil\":1,\"ok\":true}\n", "of another version"),
        (
            "{\"counterfoil\":1,\"ok\":true,\"auth\":\"none\",\"mode\":\"live\",\"name\":\"sandbox\"}\n",
            "[server] mode = \"live\", and this one \"sandbox\"",
        ),
    ] {
        let (near, far) = tokio::io::duplex(4096);
        let (reader, writer) = tokio::io::split(far);
        let (_tell, reload) = mpsc::channel(1);
        let load = || Ok(Config::sandbox("unused".as_ref()));
        let client = Client { reader, writer, stop: std::future::pending(), reload, load };
        let front = pump(reach(Config::sandbox(dir.path())), client, UNREACHED);
        let other = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(says.as_bytes()).await.unwrap();
            stream
        };
        let mut near = BufReader::new(near);
        ask(&mut near, 7).await;
        let (ended, _stream) = tokio::join!(front, other);
        let refused = ended.unwrap_err();
        assert!(refused.is_configuration() && refused.to_string().contains(expected), "{refused}");
        // Who asked already is told.
        let told = line(&mut near).await;
        assert_eq!((&told["id"], &told["error"]["data"]["kind"]), (&json!(7), &json!("unavailable")));
    }
}

/// A front with a client whose pipe holds a few bytes only, and a backend that is played.
#[tokio::test]
async fn what_the_backend_has_said_by_the_end_reaches_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("mcp.sock")).unwrap();
    let (near, far) = tokio::io::duplex(256);
    let (reader, writer) = tokio::io::split(far);
    let (_tell, reload) = mpsc::channel(1);
    let load = || Ok(Config::sandbox("unused".as_ref()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stop_it = async { drop(stopped.await) };
    let client = Client { reader, writer, stop: stop_it, reload, load };
    let front = pump(reach(Config::sandbox(dir.path())), client, UNREACHED);
    let host = async {
        let mut near = BufReader::new(near);
        let mut backend = accept(&listener).await;
        for id in 0..60 {
            ask(&mut near, id).await;
            assert_eq!(line(&mut backend).await["id"], id);
        }
        // The client takes none of it until it is stopped: more than the front and the pipes in it hold.
        for id in 0..60 {
            backend
                .write_all(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": {} })).as_bytes())
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.send(()).unwrap();
        for id in 0..60 {
            assert_eq!(line(&mut near).await["id"], id);
        }
        // The backend learns of it while it can still answer.
        let mut rest = String::new();
        assert_eq!(backend.read_line(&mut rest).await.unwrap(), 0, "{rest}");
        backend.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/last\"}\n").await.unwrap();
        drop(backend);
        assert_eq!(line(&mut near).await["method"], "notifications/last");
    };
    let (ended, ()) = tokio::join!(front, host);
    ended.unwrap();
}
