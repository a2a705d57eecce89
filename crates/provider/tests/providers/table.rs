//! What is known of each provider, written down apart from the presets.

use crate::fake::{At, Compares, Facts, Repeat, Wrong};
use serde_json::{Value, json};

/// A provider: its preset, a method of it, its facts, and what a manifest user may expect.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    pub preset: &'static str,
    /// The lines of the method, after its head.
    pub method: &'static str,
    pub facts: Facts,
    pub expect: Expect,
}

/// Outcomes as words; see `main.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    /// Of a repeat after a lost answer.
    pub repeated: &'static str,
    /// Of another request under the key: as a first send, as a repeat.
    pub other: (&'static str, &'static str),
    /// Of a repeat after a failure.
    pub failed: &'static str,
    /// How long a repeat is tried, in minutes; 0: for ever.
    pub window: i64,
}

const REPLAYS: Expect =
    Expect { repeated: "applied", other: ("refused", "unknown, stored"), failed: "applied", window: 23 * 60 };
const UNCOMPARED: Expect = Expect { other: ("applied", "applied"), ..REPLAYS };
const SHORT: Expect = Expect { window: 45, ..REPLAYS };
const SHORT_UNCOMPARED: Expect = Expect { window: 45, ..UNCOMPARED };
const MONTH: i64 = 29 * 24 * 60;

fn bare() -> Value {
    json!({ "error": "no" })
}
fn none() -> Wrong {
    (409, bare)
}

const FACTS: Facts = Facts {
    key: At::Header("idempotency-key"),
    required: false,
    lengths: (1, 255),
    keeps_all: false,
    repeat: Repeat::First,
    compares: Compares::Nothing,
    mismatch: (409, bare),
    in_flight: (409, bare),
    marker: None,
    ignores: None,
    graphql: None,
};

fn header(name: &'static str) -> Facts {
    Facts { key: At::Header(name), in_flight: none(), ..FACTS }
}
fn body(pointer: &'static str) -> Facts {
    Facts { key: At::Body(pointer), ..FACTS }
}
fn compared(facts: Facts, mismatch: Wrong) -> Facts {
    Facts { compares: Compares::Whole, mismatch, ..facts }
}

const POST: &str = "http = \"POST /payments\"";

fn one(preset: &'static str, method: &'static str, facts: Facts, expect: Expect) -> Provider {
    Provider { preset, method, facts, expect }
}

/// All but `none`.
pub fn all() -> Vec<Provider> {
    let razorpay: Wrong = (400, || json!({ "error": { "code": "BAD_REQUEST_ERROR" } }));
    vec![
        one(
            "stripe",
            POST,
            Facts {
                keeps_all: true,
                marker: Some(("Idempotent-Replayed", "true")),
                in_flight: (409, || json!({ "error": { "code": "idempotency_key_in_use" } })),
                ..compared(FACTS, (400, || json!({ "error": { "type": "idempotency_error" } })))
            },
            Expect { failed: "unknown, stored", ..REPLAYS },
        ),
        one(
            "stripe_v2",
            "http = \"POST /v2/core/accounts\"",
            Facts { repeat: Repeat::Now, ..FACTS },
            Expect { window: 60, ..UNCOMPARED },
        ),
        one(
            "resend",
            "http = \"POST /emails\"",
            Facts {
                in_flight: (409, || json!({ "name": "concurrent_idempotent_requests" })),
                ..compared(FACTS, (409, || json!({ "name": "invalid_idempotent_request" })))
            },
            REPLAYS,
        ),
        one(
            "increase",
            POST,
            Facts {
                repeat: Repeat::Now,
                marker: Some(("Idempotent-Replayed", "true")),
                ..compared(
                    FACTS,
                    (409, || json!({ "type": "idempotency_key_already_used_error", "resource_id": "0" })),
                ) // The object that has the key is fetched, and bears it.
            },
            Expect { other: ("applied", "applied"), window: 0, ..REPLAYS },
        ),
        one("modern_treasury", POST, FACTS, UNCOMPARED),
        one(
            "square",
            "http = \"POST /v2/payments\"\nidempotency = { mode = \"dynamic\" }",
            Facts {
                lengths: (1, 45),
                ..compared(
                    body("/idempotency_key"),
                    (400, || json!({ "errors": [{ "code": "IDEMPOTENCY_KEY_REUSED" }] })),
                )
            },
            SHORT,
        ),
        one(
            "paypal",
            "http = \"POST /v2/checkout/orders\"",
            Facts {
                repeat: Repeat::Now,
                lengths: (1, 108),
                in_flight: (422, || json!({ "details": [{ "issue": "PREVIOUS_REQUEST_IN_PROGRESS" }] })),
                ..compared(
                    header("paypal-request-id"),
                    (422, || json!({ "details": [{ "issue": "DUPLICATE_REQUEST_ID" }] })),
                )
            },
            Expect { window: 5 * 60, ..REPLAYS },
        ),
        one(
            "adyen",
            POST,
            Facts { lengths: (1, 64), in_flight: (422, || json!({ "errorCode": "704" })), ..FACTS },
            Expect { window: 60, ..UNCOMPARED },
        ),
        one("checkout", POST, Facts { in_flight: (429, bare), ..header("cko-idempotency-key") }, UNCOMPARED),
        one(
            "aws",
            "http = \"POST /payments\"\nidempotency = { mode = \"dynamic\" }",
            Facts {
                lengths: (33, 64),
                repeat: Repeat::Now,
                ..compared(
                    body("/ClientToken"),
                    (400, || json!({ "__type": "a#IdempotentParameterMismatch" })),
                )
            },
            Expect { window: 10, ..REPLAYS },
        ),
        one(
            "braintree",
            "http = \"POST /graphql\"\ngraphql = \"mutation Charge($input: ChargePaymentMethodInput!) { chargePaymentMethod(input: $input) { transaction { id } } }\"\nparams = { amount = \"variable:input.amount\" }",
            Facts {
                repeat: Repeat::Now,
                graphql: Some("chargePaymentMethod"),
                in_flight: (200, braintree_error),
                ..compared(body("/variables/input/apiRequestKey"), (200, braintree_error)) // A repeat that is refused so may only be early, so it is tried again.
            },
            Expect { other: ("refused", "unknown"), window: MONTH, ..REPLAYS },
        ),
        one("column", "http = \"POST /transfers/ach\"", FACTS, Expect { window: MONTH, ..UNCOMPARED }),
        one(
            "flutterwave",
            "http = \"POST /charges\"",
            Facts { marker: Some(("X-Idempotency-Cache-Hit", "true")), ..header("x-idempotency-key") },
            SHORT_UNCOMPARED,
        ),
        one(
            "gocardless",
            POST,
            Facts {
                repeat: Repeat::Named(|id| {
                    json!({ "error": { "code": 409, "errors": [{
                "reason": "idempotent_creation_conflict", "links": { "conflicting_resource_id": id }
            }] } })
                }),
                ..FACTS
            },
            SHORT_UNCOMPARED,
        ),
        one(
            "google_cloud",
            "http = \"POST /instances\"\nidempotency = { mode = \"dynamic\" }",
            Facts { key: At::Query("requestId"), lengths: (36, 36), repeat: Repeat::Now, ..FACTS },
            SHORT_UNCOMPARED,
        ),
        one(
            "mangopay",
            "http = \"POST /transfers\"",
            Facts {
                lengths: (16, 36),
                keeps_all: true,
                repeat: Repeat::Nameless,
                ..FACTS // The first answer is asked for by key then.
            },
            Expect {
                repeated: "unknown, stored",
                other: ("unknown, stored", "unknown, stored"),
                failed: "unknown, stored",
                ..REPLAYS
            },
        ),
        one(
            "mercado_pago",
            "http = \"POST /v1/payments\"",
            Facts { required: true, repeat: Repeat::Now, ..header("x-idempotency-key") },
            SHORT_UNCOMPARED,
        ),
        one("mollie", POST, FACTS, SHORT_UNCOMPARED),
        one(
            "moov",
            "http = \"POST /accounts/{account}/transfers\"",
            Facts {
                lengths: (1, 36),
                repeat: Repeat::Nameless,
                ..header("x-idempotency-key") // It was done, but what became of it is not told.
            },
            Expect {
                repeated: "unknown, stored",
                other: ("unknown, stored", "unknown, stored"),
                window: 0,
                ..REPLAYS
            },
        ),
        one(
            "onesignal",
            "http = \"POST /notifications\"",
            Facts { lengths: (36, 36), ..body("/idempotency_key") },
            Expect { window: MONTH, ..UNCOMPARED },
        ),
        one(
            "plaid",
            "http = \"POST /transfer/authorization/create\"",
            Facts { lengths: (1, 50), ..body("/idempotency_key") },
            Expect { window: 47 * 60, ..UNCOMPARED },
        ),
        one(
            "ppro",
            "http = \"POST /v1/payment-charges\"",
            Facts {
                marker: Some(("Request-Idempotency", "true")),
                ..compared(header("request-idempotency-key"), (409, bare)) // A 409 may be a twin in flight too.
            },
            Expect { other: ("unknown", "unknown"), ..REPLAYS },
        ),
        one(
            "qonto",
            "http = \"POST /v2/external_transfers\"",
            Facts { required: true, ..header("x-qonto-idempotency-key") },
            Expect { window: 25, ..UNCOMPARED },
        ),
        one(
            "rapyd",
            "http = \"POST /v1/payments\"",
            Facts { compares: Compares::Amount, ..header("idempotency") },
            UNCOMPARED,
        ),
        one(
            "razorpay_route",
            "http = \"POST /v1/transfers\"",
            Facts {
                lengths: (4, 36),
                repeat: Repeat::Now,
                ..compared(header("x-transfer-idempotency"), razorpay)
            },
            SHORT,
        ),
        one(
            "razorpayx",
            "http = \"POST /v1/payouts\"",
            Facts {
                required: true,
                lengths: (4, 36),
                repeat: Repeat::Now,
                ..compared(header("x-payout-idempotency"), razorpay)
            },
            Expect { window: 7 * 24 * 60 - 60, ..REPLAYS },
        ),
        one(
            "shopify",
            "http = \"POST /graphql.json\"\ngraphql = '''mutation Refund($amount: Int!) { refundCreate(amount: $amount) @idempotent(key: \"{$key}\") { refund { id } userErrors { code } } }'''",
            Facts {
                key: At::Directive("@idempotent(key:"),
                required: true,
                graphql: Some("refundCreate"),
                in_flight: (200, || {
                    json!({ "data": { "refundCreate": { "refund": null, "userErrors": [
                { "code": "IDEMPOTENCY_CONCURRENT_REQUEST" }] } } })
                }),
                ..compared(
                    FACTS,
                    (200, || {
                        json!({ "data": { "refundCreate": { "refund": null, "userErrors": [
                { "code": "IDEMPOTENCY_KEY_PARAMETER_MISMATCH" }] } } })
                    }),
                )
            }
            .keyed(At::Directive("@idempotent(key:")),
            SHORT,
        ),
        one(
            "solidgate",
            "http = \"POST /refund\"\nidempotency = { mode = \"dynamic\" }",
            Facts { ignores: Some(("Idempotency-Status", "ignored")), ..compared(FACTS, (422, bare)) },
            SHORT,
        ),
        one("svix", "http = \"POST /api/v1/app\"", FACTS, Expect { window: 60, ..UNCOMPARED }),
        one(
            "truelayer",
            "http = \"POST /v3/payments\"\nidempotency = { mode = \"dynamic\" }",
            Facts {
                required: true,
                in_flight: (409, || json!({ "title": "Idempotency-Key Concurrency Conflict" })),
                ..compared(FACTS, (422, || json!({ "title": "Idempotency-Key Reuse" })))
            },
            Expect { window: MONTH, ..REPLAYS },
        ),
        one(
            "wise",
            "http = \"POST /v1/transfers\"",
            Facts {
                required: true,
                lengths: (36, 36),
                repeat: Repeat::Now,
                ..body("/customerTransactionId")
            },
            SHORT_UNCOMPARED,
        ),
        one(
            "wise_uuid",
            "http = \"POST /v1/anything\"\nidempotency = { mode = \"dynamic\" }",
            Facts { lengths: (36, 36), repeat: Repeat::Now, ..header("x-idempotence-uuid") },
            SHORT_UNCOMPARED,
        ),
        one(
            "worldline",
            "http = \"POST /v2/{merchant}/payments\"",
            Facts {
                lengths: (1, 40),
                repeat: Repeat::Now,
                marker: Some(("X-GCS-Idempotence-Request-Timestamp", "1764500000000")),
                ..header("x-gcs-idempotence-key")
            },
            UNCOMPARED,
        ),
        one(
            "zuora",
            "http = \"POST /v1/payments\"",
            Facts {
                lengths: (1, 254),
                keeps_all: true,
                ..FACTS // The stored failure is not marked, so it may be something else's: it is asked again, in vain.
            },
            Expect { failed: "unknown", ..UNCOMPARED },
        ),
    ]
}

impl Facts {
    /// The same with the key elsewhere.
    fn keyed(self, key: At) -> Facts {
        Facts { key, ..self }
    }
}

fn braintree_error() -> Value {
    json!({
        "data": { "chargePaymentMethod": null },
        "errors": [{ "message": "no", "path": ["chargePaymentMethod"], "extensions": { "errorClass": "VALIDATION" } }]
    })
}
