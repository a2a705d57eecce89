//! Names of the Model Context Protocol that this crate interprets.

/// The modern revision that is spoken (spec: basic/versioning).
pub const VERSION: &str = "2026-07-28";
/// The modern revisions, newest first: what a request may name in its `_meta`; the `supported` member of version errors.
pub const SUPPORTED_VERSIONS: &[&str] = &[VERSION];

/// The tasks extension (SEP-2663).
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Keys of `_meta` (spec: basic, "General fields").
pub mod meta {
    /// Revision of a request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Name and version of the client, self-reported.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// What the client can do for this request.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Lowest level of log messages wanted for this request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Name and version of the server, self-reported.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The listen request that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Asks for progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// HTTP header names, in lower case (spec: Streamable HTTP, "Request Metadata").
pub mod header {
    /// Mirrors the `_meta` protocol version.
    pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
    /// Mirrors `method`.
    pub const METHOD: &str = "mcp-method";
    /// Mirrors the name, URI or task id a request is about.
    pub const NAME: &str = "mcp-name";
    /// Prefix of mirrored tool arguments.
    pub const PARAM_PREFIX: &str = "mcp-param-";
    /// Legacy era: the session a request belongs to.
    pub const SESSION_ID: &str = "mcp-session-id";
    /// Tells reverse proxies not to hold a stream back.
    pub const ACCEL_BUFFERING: &str = "x-accel-buffering";
}

/// Methods the wire itself must know.
pub mod method {
    /// Describes the server.
    pub const DISCOVER: &str = "server/discover";
    /// Lists tools.
    pub const TOOLS_LIST: &str = "tools/list";
    /// Calls a tool.
    pub const TOOLS_CALL: &str = "tools/call";
    /// Reads a resource.
    pub const RESOURCES_READ: &str = "resources/read";
    /// Renders a prompt.
    pub const PROMPTS_GET: &str = "prompts/get";
    /// Asks the user, by a form or a page (sent by the server).
    pub const ELICITATION_CREATE: &str = "elicitation/create";
    /// Asks the client's language model (sent by the server).
    pub const SAMPLING_CREATE: &str = "sampling/createMessage";
    /// Asks for the client's roots (sent by the server).
    pub const ROOTS_LIST: &str = "roots/list";
    /// Tells the state of a task (extension `io.modelcontextprotocol/tasks`, SEP-2663).
    pub const TASKS_GET: &str = "tasks/get";
    /// Answers what a task asks.
    pub const TASKS_UPDATE: &str = "tasks/update";
    /// Asks to end a task.
    pub const TASKS_CANCEL: &str = "tasks/cancel";
    /// Opens a stream of change notifications.
    pub const LISTEN: &str = "subscriptions/listen";
    /// Opening of the legacy era.
    pub const INITIALIZE: &str = "initialize";
    /// Legacy era: asks whether the other side lives.
    pub const PING: &str = "ping";
    /// Ends a running request.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// Progress of a request.
    pub const PROGRESS: &str = "notifications/progress";
    /// A log message of a request.
    pub const MESSAGE: &str = "notifications/message";
    /// First message of a listen stream.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
}

/// Values of `resultType`.
pub mod result_type {
    /// The final content.
    pub const COMPLETE: &str = "complete";
    /// More input is needed; the client calls again.
    pub const INPUT_REQUIRED: &str = "input_required";
    /// The work goes on as a task (extension `io.modelcontextprotocol/tasks`).
    pub const TASK: &str = "task";
}

/// The member of `params` that `Mcp-Name` mirrors, by method. `tasks/*` comes from the tasks extension.
pub fn name_source(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}
