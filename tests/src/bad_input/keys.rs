//! Idempotency keys, arguments, and who calls.

use super::*;

const NO_API_KEY: &str =
    "Refused: this server needs an API key: send it as `Authorization: Bearer cfk_…`. Nothing ran.";
const BAD_API_KEY: &str = "Refused: this API key is not known here, or was revoked. Nothing ran.";
const EXPIRED: &str = "This key names an operation that is not, or no longer, kept here, so nothing ran. Find out by other means whether the earlier call had its effect; if a new one is wanted, call with `newKey`. newKey: {key}";
const BAD_HEADER_KEY: &str = "Invalid params: Idempotency-Key: must be one RFC 8941 string, or a bare value of visible ASCII. Nothing ran.";
const UNKNOWN_API_KEY: &str = "an unknown or revoked API key";
const EMPTY: &str = "key empty, by a program";
const TOO_LONG: &str = "key too long, by a program";
const INVISIBLE: &str = "key with blanks, controls or beyond ASCII, by a program";
const CLAIMS: &str = "key that claims to be an operation id, by a program";
const NO_KEY_HEADER: &str = "header value that is no key";
const DISAGREE: &str = "carriers that disagree";
const IN_ARGUMENT: &str = "bad key in the argument";
const NOT_KEPT: &str = "the key's operation is not, or no longer, kept; or it is somebody else's";

const YOUNG: &str =
    "the key is an operation's id, not a minute old, and the operation is not here; or it is somebody else's";
const RETRY: &[&str] = &["retryKey", "retryAfterMs"];
const UNCONFIRMED: &str = "The ledger did not confirm the operation, so it is not known whether it was admitted. Call again with `retryKey` as the idempotency key and the same arguments: if it was admitted, you get its answer. Without that key it could be done twice. retryAfterMs: 5000 retryKey: {key}";

/// The rows.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // Keys, carrier by carrier.
    rpc("params: empty", EMPTY, with(GOOD, r#""idempotencyKey":"","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("params: too long", TOO_LONG, with(GOOD, r#""idempotencyKey":"$LONG","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("params: a control", INVISIBLE, with(GOOD, r#""idempotencyKey":"a\u0001b","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("params: a blank", INVISIBLE, with(GOOD, r#""idempotencyKey":"a b","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("params: beyond ASCII", INVISIBLE, with(GOOD, r#""idempotencyKey":"é","#), 400, -32602, "Invalid params: params.idempotencyKey: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("params: op_", CLAIMS, with(GOOD, r#""idempotencyKey":"op_mine","#), 400, -32602, "Invalid params: params.idempotencyKey: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    rpc("params: a number", "key of a wrong type, by a program", with(GOOD, r#""idempotencyKey":5,"#), 400, -32602, "Invalid params: params.idempotencyKey: must be a string. Nothing ran."),
    rpc("params: null", "key of a wrong type, by a program", with(GOOD, r#""idempotencyKey":null,"#), 400, -32602, "Invalid params: params.idempotencyKey: must be a string. Nothing ran."),
    rpc("_meta: empty", EMPTY, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":""}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("_meta: too long", TOO_LONG, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"$LONG"}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("_meta: a control", INVISIBLE, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"a\nb"}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("_meta: op_", CLAIMS, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"op_01ARZ3NDEKTSV4RRFFQ69G5FA"}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    rpc("_meta: an array", "key of a wrong type, by a program", meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":["a"]}"#), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: must be a string. Nothing ran."),
    rpc("header: empty", EMPTY, header(GOOD, &[("Idempotency-Key", "")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("header, quoted: empty", EMPTY, header(GOOD, &[("Idempotency-Key", "\"\"")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key is empty; leave it out or give 1 to 255 characters. Nothing ran."),
    rpc("header: too long", TOO_LONG, header(GOOD, &[("Idempotency-Key", "$LONG")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("header, quoted: too long", TOO_LONG, header(GOOD, &[("Idempotency-Key", "\"$LONG\"")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has 256 characters; at most 255 are allowed. Nothing ran."),
    rpc("header: a blank", INVISIBLE, header(GOOD, &[("Idempotency-Key", "a b")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("header, quoted: a blank", INVISIBLE, header(GOOD, &[("Idempotency-Key", "\"a b\"")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("header: a tab", INVISIBLE, header(GOOD, &[("Idempotency-Key", "a\tb")]), 400, -32602, "Invalid params: Idempotency-Key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Nothing ran."),
    rpc("header: beyond ASCII", NO_KEY_HEADER, header(GOOD, &[("Idempotency-Key", "é")]), 400, -32602, BAD_HEADER_KEY),
    rpc("header, quoted: no end", NO_KEY_HEADER, header(GOOD, &[("Idempotency-Key", "\"abc")]), 400, -32602, BAD_HEADER_KEY),
    rpc("header, quoted: an unknown escape", NO_KEY_HEADER, header(GOOD, &[("Idempotency-Key", "\"a\\x\"")]), 400, -32602, BAD_HEADER_KEY),
    rpc("header: op_", CLAIMS, header(GOOD, &[("Idempotency-Key", "op_")]), 400, -32602, "Invalid params: Idempotency-Key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    rpc("header, quoted: op_", CLAIMS, header(GOOD, &[("Idempotency-Key", "\"op_\"")]), 400, -32602, "Invalid params: Idempotency-Key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Nothing ran."),
    kind("argument: empty", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":""}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: the idempotency key is empty; leave it out or give 1 to 255 characters. Correct the arguments and call again."),
    kind("argument: too long", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"$LONG"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: the idempotency key has 256 characters; at most 255 are allowed. Correct the arguments and call again."),
    kind("argument: a control", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"a\u007fb"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: the idempotency key has a character outside visible ASCII (0x21 to 0x7E). Correct the arguments and call again."),
    kind("argument: op_", IN_ARGUMENT, call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"op_x"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key: keys that begin with `op_` are operation ids, and this is not one; use the `retryKey` exactly as it was given. Correct the arguments and call again."),
    kind("argument: a number", "key of a wrong type in the argument", call(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":5}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key must be a string; leave it out unless an earlier answer gave you a value. Correct the arguments and call again."),

    // Carriers that disagree.
    rpc("params against _meta", DISAGREE, Ask::of(Body::Call(TOOL, GOOD, r#""idempotencyKey":"a","#, r#"{$META,"dev.counterfoil/idempotency-key":"b"}"#)), 400, -32602, "Invalid params: dev.counterfoil/idempotency-key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    rpc("params against the header", DISAGREE, with(GOOD, r#""idempotencyKey":"a","#).add(&[("Idempotency-Key", "b")]), 400, -32602, "Invalid params: Idempotency-Key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    rpc("_meta against the quoted header", DISAGREE, meta(GOOD, r#"{$META,"dev.counterfoil/idempotency-key":"a"}"#).add(&[("Idempotency-Key", "\"A\"")]), 400, -32602, "Invalid params: Idempotency-Key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    rpc("two headers", DISAGREE, header(GOOD, &[("Idempotency-Key", "a"), ("Idempotency-Key", "b")]), 400, -32602, "Invalid params: Idempotency-Key: two carriers of the idempotency key disagree; send one, or the same in all. Nothing ran."),
    kind("params against the argument", "argument and carrier disagree", with(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"b"}"#, r#""idempotencyKey":"a","#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key differs from the idempotency key that came with the request; leave it out. Correct the arguments and call again."),
    kind("the header against the argument", "argument and carrier disagree", header(r#"{"payment":"pay_demo_never","amount":1,"idempotency_key":"b"}"#, &[("Idempotency-Key", "\"a\"")]), "bad_arguments", &[], "The arguments don't fit, so nothing ran: idempotency_key differs from the idempotency key that came with the request; leave it out. Correct the arguments and call again."),

    // Arguments.
    kind("no arguments", SCHEMA, ask("tools/call", r#""name":"lab_refunds_create","#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: \"payment\" is a required property; \"amount\" is a required property. Correct the arguments and call again."),
    kind("arguments that lack one", SCHEMA, call(r#"{"amount":1}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: \"payment\" is a required property. Correct the arguments and call again."),
    kind("a string for an integer", SCHEMA, call(r#"{"payment":"pay_demo_never","amount":"1"}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: at /amount: \"1\" is not of type \"integer\". Correct the arguments and call again."),
    kind("a fraction for an integer", SCHEMA, call(r#"{"payment":"pay_demo_never","amount":1.5}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: at /amount: 1.5 is not of type \"integer\". Correct the arguments and call again."),
    kind("below the minimum", SCHEMA, call(r#"{"payment":"pay_demo_never","amount":0}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: at /amount: 0 is less than the minimum of 1. Correct the arguments and call again."),
    kind("an argument too many, under a key", SCHEMA, with(r#"{"payment":"pay_demo_never","amount":1,"surprise":1}"#, r#""idempotencyKey":"bad-arguments","#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: Additional properties are not allowed ('surprise' was unexpected). Correct the arguments and call again."),
    kind("an exponent without end", "arguments without a canonical form (an exponent beyond 100,000)", call(r#"{"payment":"pay_demo_never","amount":1e999999}"#), "bad_arguments", &[], "The arguments don't fit, so nothing ran: a number's exponent is beyond 100000. Correct the arguments and call again."),
    kind("no key where one is needed", "`unkeyed = \"reject\"` and no key", tool(STRICT, GOOD), "key_required", NEW, "This tool needs an idempotency key, so nothing ran. Call again with a key of your own that stays the same for every repetition of this call, or with `newKey`. newKey: {key}"),

    // One key, other arguments.
    opens("a key's first call", with(r#"{"payment":"pay_demo_one","amount":1,"order_id":"one"}"#, r#""idempotencyKey":"one","#)),
    joins("1.0 is 1", "key", with(r#"{"payment":"pay_demo_one","amount":1.0,"order_id":"one"}"#, r#""idempotencyKey":"one","#)),
    joins("another order and spelling, by the quoted header", "key", header(r#"{"order_id":"one","amount":10e-1,"payment":"\u0070ay_demo_one"}"#, &[("Idempotency-Key", "\"one\"")])),
    joins("all carriers, one key", "key", Ask::of(Body::Call(TOOL, r#"{"payment":"pay_demo_one","amount":1,"order_id":"one","idempotency_key":"one"}"#, r#""idempotencyKey":"one","#, r#"{$META,"dev.counterfoil/idempotency-key":"one"}"#)).add(&[("Idempotency-Key", "one")])),
    kind("other arguments", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_one","amount":2,"order_id":"one"}"#, r#""idempotencyKey":"one","#), "key_conflict", NEW, CONFLICT),
    kind("an argument fewer", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_one","amount":1}"#, r#""idempotencyKey":"one","#), "key_conflict", NEW, CONFLICT),
    kind("other arguments, by _meta", OTHER_ARGUMENTS, meta(r#"{"payment":"pay_demo_one","amount":3,"order_id":"one"}"#, r#"{$META,"dev.counterfoil/idempotency-key":"one"}"#), "key_conflict", NEW, CONFLICT),
    kind("other arguments, by the header", OTHER_ARGUMENTS, header(r#"{"payment":"pay_demo_one","amount":4,"order_id":"one"}"#, &[("Idempotency-Key", "one")]), "key_conflict", NEW, CONFLICT),
    kind("other arguments, by the argument", OTHER_ARGUMENTS, call(r#"{"payment":"pay_demo_one","amount":5,"order_id":"one","idempotency_key":"one"}"#), "key_conflict", NEW, CONFLICT),
    kind("arguments that break the schema, under a key in use", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_one","amount":"1"}"#, r#""idempotencyKey":"one","#), "key_conflict", NEW, CONFLICT),
    opens("a key of 255 characters", with(r#"{"payment":"pay_demo_full","amount":1,"order_id":"full"}"#, r#""idempotencyKey":"$FULL","#)),
    opens("2^53", with(r#"{"payment":"pay_demo_wide","amount":1,"order_id":"wide","metadata":{"serial":9007199254740992}}"#, r#""idempotencyKey":"wide","#)),
    kind("2^53 + 1", OTHER_ARGUMENTS, with(r#"{"payment":"pay_demo_wide","amount":1,"order_id":"wide","metadata":{"serial":9007199254740993}}"#, r#""idempotencyKey":"wide","#), "key_conflict", NEW, CONFLICT),
    joins("2^53 again", "key", with(r#"{"payment":"pay_demo_wide","amount":1,"order_id":"wide","metadata":{"serial":9007199254740992.0}}"#, r#""idempotencyKey":"wide","#)),

    // Keys that the ledger gave.
    opens("a call without a key", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#)),
    kind("its twin", DELIVERED, call(r#"{"payment":"pay_demo_twin","amount":1.00,"order_id":"twin"}"#), "twin", BOTH, TWIN),
    joins("retryKey as the argument", "operation", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin","idempotency_key":"$RETRY"}"#)),
    joins("retryKey as the header", "operation", header(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#, &[("Idempotency-Key", "$RETRY")])),
    kind("retryKey with other arguments", OTHER_ARGUMENTS, call(r#"{"payment":"pay_demo_twin","amount":2,"order_id":"twin","idempotency_key":"$RETRY"}"#), "key_conflict", NEW, CONFLICT),
    kind("its twin again", DELIVERED, call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#), "twin", BOTH, TWIN),
    opens("newKey as the argument", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin","idempotency_key":"$NEW"}"#)),
    joins("newKey again", "key", call(r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin","idempotency_key":"$NEW"}"#)),
    kind("retryKey at another tool", YOUNG, Ask::of(Body::Call(STRICT, r#"{"payment":"pay_demo_twin","amount":1,"order_id":"twin"}"#, r#""idempotencyKey":"$OPERATION","#, META)), "admission_unknown", RETRY, UNCONFIRMED),
    kind("an operation that never was", NOT_KEPT, with(GOOD, r#""idempotencyKey":"op_01ARZ3NDEKTSV4RRFFQ69G5FAV","#), "key_expired", NEW, EXPIRED),
    kind("newKey, forged", OTHER_ARGUMENTS, with(GOOD, r#""idempotencyKey":"$FORGED","#), "key_conflict", NEW, CONFLICT),
    kind("newKey, for other arguments", OTHER_ARGUMENTS, call(r#"{"payment":"pay_demo_never","amount":2,"order_id":"never","idempotency_key":"$NEW"}"#), "key_conflict", NEW, CONFLICT),
    kind("newKey, at another tool", OTHER_ARGUMENTS, Ask::of(Body::Call(STRICT, r#"{"payment":"pay_demo_never","amount":2,"order_id":"never"}"#, r#""idempotencyKey":"$NEW","#, META)), "key_conflict", NEW, CONFLICT),

    // Who calls.
    bare("no API key", "no API key", call(GOOD), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("a token that is none", "no API key", call(GOOD).add(&[("Authorization", "Bearer hunter2")]), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("another scheme", "no API key", call(GOOD).add(&[("Authorization", "Basic $ALICE")]), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("two API keys", "no API key", call(GOOD).add(&[("Authorization", "Bearer $ALICE"), ("Authorization", "Bearer $BOB")]), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    bare("an unknown API key", UNKNOWN_API_KEY, call(GOOD).add(&[("Authorization", "Bearer cfk_nobody")]), 401, -32600, BAD_API_KEY).also(BEARER).locked(),
    bare("a revoked API key", UNKNOWN_API_KEY, call(GOOD).add(&[("Authorization", "Bearer $REVOKED")]), 401, -32600, BAD_API_KEY).also(BEARER).locked(),
    bare("bad JSON without an API key: who calls comes first", "no API key", text("{"), 401, -32600, NO_API_KEY).also(BEARER).locked(),
    opens("Alice's call", with(r#"{"payment":"pay_demo_alice","amount":1,"order_id":"alice"}"#, r#""idempotencyKey":"shared","#).add(&[("Authorization", "Bearer $ALICE")])).locked(),
    kind("Bob with Alice's operation", YOUNG, with(r#"{"payment":"pay_demo_alice","amount":1,"order_id":"alice"}"#, r#""idempotencyKey":"$OPERATION","#).add(&[("Authorization", "Bearer $BOB")]), "admission_unknown", RETRY, UNCONFIRMED).locked(),
    opens("Bob's own under the same key", with(r#"{"payment":"pay_demo_bob","amount":1,"order_id":"bob"}"#, r#""idempotencyKey":"shared","#).add(&[("Authorization", "Bearer $BOB")])).locked(),
    joins("Alice's again", "key", with(r#"{"payment":"pay_demo_alice","amount":1,"order_id":"alice"}"#, r#""idempotencyKey":"shared","#).add(&[("Authorization", "Bearer $ALICE")])).locked(),
];
