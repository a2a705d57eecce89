//! The key ring of a ledger on SQLite: made with the ledger, found again, turned, and never replaced because its master
//! key isn't there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Dir, Ran, Served, ran};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0"];
const MASTER: &str = ".counterfoil/master.key";

fn serve(dir: &Dir) -> Served {
    dir.serve(&SERVE[1..])
}

fn keys(ran: Ran) -> Vec<(String, String)> {
    let json = ran.expect(0).json();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    json["keys"].as_array().unwrap().iter().map(|k| (text(&k["id"]), text(&k["stage"]))).collect()
}

#[test]
fn a_ring_is_made_with_its_ledger_and_turned() {
    let dir = Dir::new();
    let served = serve(&dir);
    let master = dir.path().join(MASTER);
    assert_eq!(std::fs::metadata(&master).unwrap().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&master).unwrap();

    let first = keys(dir.run(&["keys", "list", "--json"]));
    assert_eq!((first.len(), &*first[0].1), (1, "active"));
    let shown = dir.run(&["keys", "list"]).expect(0);
    assert!(shown.stdout.contains("STAGE") && shown.stdout.contains("mk-"), "{shown:?}");
    assert!(!shown.stdout.contains(secret.trim()), "{shown:?}");
    let doctor = dir.run(&["doctor"]);
    assert!(doctor.stdout.contains(&format!("{} seals since", first[0].0)), "{doctor:?}");

    let turned = keys(dir.run(&["keys", "rotate", "--json"]));
    assert_eq!((&turned[0], &*turned[1].1), (&first[0], "standby"));
    let again = dir.run(&["keys", "rotate"]).expect(1);
    assert!(again.stderr.contains("on its way already") && again.stderr.contains("--now"), "{again:?}");
    assert_eq!(keys(dir.run(&["keys", "list", "--json"])), turned);
    assert_eq!(served.stop(), 0);

    // Without a process that serves, too; and it is the same after a start.
    assert_eq!(keys(dir.run(&["keys", "list", "--json"])), turned);
    let now = keys(dir.run(&["keys", "rotate", "--now", "--json"]));
    assert!(now.len() == 1 && now[0].1 == "active" && !turned.contains(&now[0]), "{now:?}");
    let served = serve(&dir);
    assert_eq!(keys(dir.run(&["keys", "list", "--json"])), now);
    assert_eq!(served.stop(), 0);
    // Neither the ledger nor its log has the master key.
    for file in std::fs::read_dir(dir.path().join(".counterfoil")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() && path != master {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(40).any(|w| *w == secret.as_bytes()[..40]), "{}", path.display());
        }
    }
}

#[test]
fn a_lost_master_key_is_told_and_nothing_is_replaced() {
    let dir = Dir::new();
    assert_eq!(serve(&dir).stop(), 0);
    let master = dir.path().join(MASTER);
    let kept = std::fs::read(&master).unwrap();
    let ring = keys(dir.run(&["keys", "list", "--json"]));

    std::fs::set_permissions(&master, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = dir.run(&SERVE).expect(2);
    assert!(open.stderr.contains("others may read it") && open.stderr.contains("chmod 600"), "{open:?}");
    std::fs::set_permissions(&master, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&master, "not a key\n").unwrap();
    let damaged = dir.run(&SERVE).expect(2);
    assert!(damaged.stderr.contains("32 bytes") && !damaged.stderr.contains("not a key"), "{damaged:?}");

    std::fs::remove_file(&master).unwrap();
    let lost = dir.run(&SERVE).expect(2);
    assert!(lost.stderr.contains("Nothing was changed") && lost.stderr.contains("keys reset"), "{lost:?}");
    assert!(!master.exists(), "a new one would open nothing");
    let doctor = dir.run(&["doctor"]).expect(2);
    assert!(doctor.stdout.contains("sealed under the master key"), "{doctor:?}");
    let mut other = dir.command(&SERVE);
    let wrong = ran(other.env("COUNTERFOIL__SEAL__MASTER", "f".repeat(64))).expect(2);
    assert!(
        wrong.stderr.contains("from [seal] master") && wrong.stderr.contains("Nothing was changed"),
        "{wrong:?}"
    );
    // Operations don't depend on it.
    let params = ["--param", "payment=pay_demo", "--param", "order_id=o1", "--param", "amount=5"];
    let exec = ["exec", "payments.refunds.create", "--json", "--sandbox-listen", "127.0.0.1:0"];
    dir.run(&[&exec[..], &params].concat()).expect(0);

    // Put back, it is the same ring.
    std::fs::write(&master, &kept).unwrap();
    std::fs::set_permissions(&master, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(keys(dir.run(&["keys", "list", "--json"])), ring);
    let refused = dir.run(&["keys", "reset"]).expect(1);
    assert!(refused.stderr.contains("opens with the master key"), "{refused:?}");
    // Lost for good: a new ring, asked for.
    std::fs::remove_file(&master).unwrap();
    let reset = keys(dir.run(&["keys", "reset", "--json"]));
    assert!(reset.len() == 1 && reset != ring, "{reset:?}");
    assert_ne!(std::fs::read(&master).unwrap(), kept);
    assert_eq!(serve(&dir).stop(), 0);
}

#[test]
fn one_process_may_have_another_name() {
    let dir = Dir::new();
    let none = dir.run(&["keys", "list"]).expect(2);
    assert!(none.stderr.contains("no ledger"), "{none:?}");
    assert_eq!(serve(&dir).stop(), 0);
    dir.write("counterfoil.toml", "[server]\nname = \"shop\"\n[sandbox]\nlisten = \"127.0.0.1:0\"\n");
    let doctor = dir.run(&["doctor"]).expect(2);
    assert!(doctor.stdout.contains("belongs to the server name \"counterfoil\""), "{doctor:?}");
    let served = dir.serve(&["--listen", "127.0.0.1:0"]);
    served.logged("the server has another name");
    assert_eq!(dir.run(&["keys", "list", "--json"]).expect(0).json()["serverName"], "shop");
    assert_eq!(served.stop(), 0);
}
