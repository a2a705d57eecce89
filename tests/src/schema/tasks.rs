//! What the tasks extension adds to revision 2026-07-28 (SEP-2663): the protocol's own schema doesn't have it.

use jsonschema::Validator;
use serde_json::{Value, json};

/// The extension's methods, all sent by the client.
pub const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];
/// Its notification, sent by the server.
pub const NOTIFICATION: &str = "notifications/tasks";

/// The extension's definitions.
pub struct Tasks {
    created: Validator,
    detailed: Validator,
    acknowledged: Validator,
    asked: Validator,
}

impl Tasks {
    /// Compiles them.
    ///
    /// # Errors
    /// One is no schema, which would be a mistake of this file.
    pub fn new() -> Result<Tasks, String> {
        let made = |schema: Value| jsonschema::options().build(&schema).map_err(|e| e.to_string());
        let task = json!({
            "type": "object",
            "required": ["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"],
            "properties": {
                "taskId": {"type": "string", "minLength": 1},
                "status": {"enum": ["working", "input_required", "completed", "cancelled", "failed"]},
                "statusMessage": {"type": "string"},
                "createdAt": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"},
                "lastUpdatedAt": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"},
                "ttlMs": {"type": ["integer", "null"], "minimum": 0},
                "pollIntervalMs": {"type": "integer", "minimum": 0},
                "_meta": {"type": "object"},
            },
        });
        // Each status has its own member, and no other status has it.
        let own = |status: &str, member: &str| {
            json!({
                "if": {"properties": {"status": {"const": status}}},
                "then": {"required": [member], "properties": {(member): {"type": "object"}}},
                "else": {"not": {"required": [member]}},
            })
        };
        let typed =
            |kind: &str| json!({"required": ["resultType"], "properties": {"resultType": {"const": kind}}});
        let detailed = json!({"allOf": [
            task, own("input_required", "inputRequests"), own("completed", "result"), own("failed", "error"),
        ]});
        Ok(Tasks {
            created: made(json!({"allOf": [task, typed("task")]}))?,
            acknowledged: made(json!({"allOf": [{"type": "object"}, typed("complete")]}))?,
            asked: made(json!({
                "required": ["params"],
                "properties": {"params": {"required": ["taskId"], "properties": {
                    "taskId": {"type": "string"},
                    "inputResponses": {"type": "object", "additionalProperties": {"type": "object"}},
                }}},
            }))?,
            detailed: made(detailed)?,
        })
    }

    /// A `tools/call` result that hands out a task.
    pub fn created(&self, result: &Value) -> Result<(), String> {
        told(&self.created, "CreateTaskResult", result)
    }

    /// The result of one of [`METHODS`].
    pub fn result(&self, method: &str, result: &Value) -> Result<(), String> {
        told(&self.acknowledged, "Result", result)?;
        if method == "tasks/get" { self.detailed(result) } else { Ok(()) }
    }

    /// A task with what belongs to its status.
    pub fn detailed(&self, task: &Value) -> Result<(), String> {
        told(&self.detailed, "DetailedTask", task)
    }

    /// A request of one of [`METHODS`].
    pub fn request(&self, method: &str, message: &Value) -> Result<(), String> {
        told(&self.asked, "request of a task", message)?;
        let answers = message.pointer("/params/inputResponses").is_some();
        if answers == (method == "tasks/update") {
            return Ok(());
        }
        Err("only tasks/update has inputResponses, and it always has".into())
    }
}

fn told(validator: &Validator, name: &str, value: &Value) -> Result<(), String> {
    match validator.iter_errors(value).next() {
        None => Ok(()),
        Some(error) => {
            let text: String = error.to_string().chars().take(300).collect();
            Err(format!("no {name} (SEP-2663): {text}"))
        }
    }
}
