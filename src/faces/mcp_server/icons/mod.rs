//! The icons of the server and its tools, as small PNG in `data:` URIs: they need no network, and every client that shows
//! icons has to know PNG. `packaging/icon/draw.py` draws them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::Icon;

/// The server's icon.
pub(super) fn server() -> Vec<Icon> {
    vec![icon(include_bytes!("ipybox.png"), "48x48")]
}

/// The icon of the tool with this name.
pub(super) fn tool(name: &str) -> Vec<Icon> {
    use super::{execute, install, register, reset, wait};

    let file: &[u8] = match name {
        execute::NAME => include_bytes!("execute.png"),
        register::NAME => include_bytes!("register.png"),
        install::NAME => include_bytes!("install.png"),
        reset::NAME => include_bytes!("reset.png"),
        wait::NAME => include_bytes!("wait.png"),
        _ => return Vec::new(),
    };
    vec![icon(file, "32x32")]
}

fn icon(file: &[u8], size: &str) -> Icon {
    let uri = format!("data:image/png;base64,{}", BASE64.encode(file));
    Icon::new(uri).with_mime_type("image/png").with_sizes(vec![size.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icons_are_small_pictures_of_their_size() {
        let tools = crate::faces::mcp_server::tools::definitions(true, &[])
            .into_iter()
            .flat_map(|tool| tool.icons.unwrap());
        let icons: Vec<Icon> = server().into_iter().chain(tools).collect();
        assert_eq!(icons.len(), 6);
        for icon in icons {
            let file = BASE64.decode(icon.src.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
            let image = image::load_from_memory(&file).unwrap();
            assert_eq!(icon.sizes.unwrap(), [format!("{}x{}", image.width(), image.height())]);
            assert!(icon.src.len() < 1_200, "{} bytes", icon.src.len());
        }
    }
}
