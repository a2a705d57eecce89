//! What each `sslmode` promises, against a server with a certificate of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use ledger::SystemEnv;
use ledger_postgres::{Config, OpenError, PgStore};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::sync::Arc;
use temp_postgres::{Options, Stop, TempPostgres};

async fn open(url: String) -> Result<Arc<PgStore>, OpenError> {
    PgStore::open(Config::new(url, "test"), Arc::new(SystemEnv), Arc::new(|why| panic!("{why}"))).await
}

/// An authority (`root.crt`), and a certificate of it for `localhost` in the server's data directory.
fn certificate(server: &TempPostgres) {
    let key = ["-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    let authority = ["-subj", "/CN=tests", "-keyout", "root.key", "-out", "root.crt"];
    let leaf = [
        [
            "-CA",
            "root.crt",
            "-CAkey",
            "root.key",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        [
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            "data/server.key",
            "-out",
            "data/server.crt",
            "-set_serial",
            "2",
        ],
    ];
    for what in [authority.to_vec(), leaf.concat()] {
        let mut make = Command::new("openssl");
        make.current_dir(server.data().parent().unwrap()).args(["req", "-x509"]).args(key).args(what);
        let done = make.output().expect("openssl is there");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let owner = std::fs::metadata(server.data()).unwrap();
    for file in ["server.key", "server.crt"] {
        let file = server.data().join(file);
        std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modes() {
    let server = TempPostgres::start(Options::default());
    let database = server.database();
    let url =
        |host: &str, rest: &str| format!("postgres://postgres@{host}:{}/{database}{rest}", server.port());
    let refused = |r: Result<Arc<PgStore>, OpenError>| match r {
        Err(OpenError::Unreachable(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    };
    // No TLS there.
    open(url("127.0.0.1", "")).await.unwrap();
    refused(open(url("127.0.0.1", "?sslmode=require")).await);

    certificate(&server);
    server.sql("postgres", "ALTER SYSTEM SET ssl = on");
    server.restart(Stop::Fast);
    // The others would be refused by this from now on.
    std::fs::write(server.data().join("pg_hba.conf"), "local all all trust\nhostssl all all all trust\n")
        .unwrap();
    server.restart(Stop::Fast);
    let root = format!("sslrootcert={}", server.data().parent().unwrap().join("root.crt").display());
    assert!(open(url("127.0.0.1", "?sslmode=disable")).await.is_err(), "only TLS is let in");
    for good in [
        url("127.0.0.1", ""),
        url("127.0.0.1", "?sslmode=require"),
        url("127.0.0.1", &format!("?sslmode=verify-ca&{root}")),
        url("localhost", &format!("?sslmode=verify-full&{root}")),
    ] {
        let store = open(good.clone()).await.unwrap_or_else(|e| panic!("{good}: {e}"));
        store.ready().await.unwrap();
    }
    let why = refused(open(url("127.0.0.1", &format!("?sslmode=verify-full&{root}"))).await);
    assert!(why.contains("certificate"), "another name: {why}");
    let why = refused(open(url("localhost", "?sslmode=verify-full")).await);
    assert!(why.contains("certificate"), "an unknown authority: {why}");
    refused(open(url("localhost", "?sslmode=verify-ca")).await);
}
