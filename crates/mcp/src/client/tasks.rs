//! Tasks (extension `io.modelcontextprotocol/tasks`, SEP-2663): what a call that goes on is asked and told. The client has
//! to declare the extension. `Mcp-Name` is the task's id.
use super::{CallOptions, McpClient, Reply};
use crate::constants::method;
use crate::error::Error;
use crate::json::{Raw, quote};

impl McpClient {
    /// `tasks/get`: the task as it stands.
    ///
    /// # Errors
    /// As [`McpClient::request`].
    pub async fn get_task(&self, id: &str, options: CallOptions<'_>) -> Result<Reply, Error> {
        self.request(method::TASKS_GET, &[("taskId", Raw::string(id))], options).await
    }

    /// `tasks/update`: answers to what the task asks, by key.
    ///
    /// # Errors
    /// As [`McpClient::request`].
    pub async fn update_task(
        &self,
        id: &str,
        answers: &[(&str, Raw)],
        options: CallOptions<'_>,
    ) -> Result<Reply, Error> {
        let all: Vec<_> = answers.iter().map(|(key, answer)| format!("{}:{answer}", quote(key))).collect();
        let answers = Raw::trusted(format!("{{{}}}", all.join(",")));
        let params = [("taskId", Raw::string(id)), ("inputResponses", answers)];
        self.request(method::TASKS_UPDATE, &params, options).await
    }

    /// `tasks/cancel`: asks that the task end. Whether it does is told by [`McpClient::get_task`].
    ///
    /// # Errors
    /// As [`McpClient::request`].
    pub async fn cancel_task(&self, id: &str, options: CallOptions<'_>) -> Result<Reply, Error> {
        self.request(method::TASKS_CANCEL, &[("taskId", Raw::string(id))], options).await
    }
}
