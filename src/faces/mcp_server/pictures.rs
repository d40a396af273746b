//! The images that a reply shows: few, and small enough for models.
//!
//! They come from code in the kernel, so they may be broken or hostile. Images that cannot be shown are left
//! out: their links remain.

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as RowFilter, PngEncoder};
use image::error::{LimitError, LimitErrorKind};
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{
    DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, ImageResult, Limits, RgbImage,
};
use rmcp::model::ContentBlock;
use tokio::sync::Mutex;

/// The number of images that a reply shows. Each costs a model about as much as a page of text.
const MAX_SHOWN: usize = 4;

/// The number of images of a cell that are tried. More than are shown, since some may be broken; a broken one may take
/// as long as a good one.
const MAX_TRIED: usize = 6;

/// The longest side of an image, in pixels: Claude scales down larger ones.
const MAX_SIDE: u32 = 1_568;

/// The largest file of an image, before Base64.
const MAX_BYTES: usize = 1024 * 1024;

/// The largest image that is decoded, in pixels: a poster of 50 × 70 cm at 230 dots per inch.
const MAX_PIXELS: u64 = 30_000_000;

/// The limit of a decoder's allocations: room for the largest image with 8 bits per channel. The decoders of
/// JPEG and WebP do not count all they need: [`MAX_PIXELS`] as a progressive JPEG take 270 MiB.
const MAX_DECODER_BYTES: u64 = 256 * 1024 * 1024;

/// The qualities of JPEG that are tried at each size, of 100. Below the last, text in plots can hardly be read.
const JPEG_QUALITIES: [u8; 3] = [90, 75, 60];

/// The longest sides of JPEG that are tried: each time half as many pixels. Noise, the worst case, fits at the second.
const JPEG_SIDES: [u32; 3] = [MAX_SIDE, 1_108, 784];

/// Decodes one image at a time, to bound memory however many cells end at once.
static TURNSTILE: Mutex<()> = Mutex::const_new(());

/// The first of `files` that can be shown, as content of a reply.
pub(super) async fn shown<I>(files: I) -> Vec<ContentBlock>
where
    I: IntoIterator<Item = Vec<u8>> + Send + 'static,
{
    let turn = TURNSTILE.lock().await;
    let decoding = tokio::task::spawn_blocking(move || {
        let content = inline(files);
        // Dropped here, since the decoding goes on if its caller is gone.
        drop(turn);
        content
    });
    decoding.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "images cannot be shown");
        Vec::new()
    })
}

/// The first of `files` that can be shown, as content of a reply.
fn inline(files: impl IntoIterator<Item = Vec<u8>>) -> Vec<ContentBlock> {
    files
        .into_iter()
        .filter_map(|file| Some((shown_format(&file)?, file)))
        .take(MAX_TRIED)
        .filter_map(|(format, file)| match fit(file, format) {
            Ok(picture) => Some(picture),
            Err(error) => {
                tracing::debug!(%error, "an image is not shown");
                None
            }
        })
        .take(MAX_SHOWN)
        .map(|picture| ContentBlock::image(BASE64.encode(picture.file), picture.format.to_mime_type()))
        .collect()
}

/// The format by a file's first bytes, if MCP clients and models accept it.
fn shown_format(file: &[u8]) -> Option<ImageFormat> {
    use ImageFormat::{Gif, Jpeg, Png, WebP};

    image::guess_format(file).ok().filter(|format| matches!(format, Png | Jpeg | Gif | WebP))
}

/// An encoded image that fits in a reply.
struct Picture {
    format: ImageFormat,
    file: Vec<u8>,
}

/// The file itself if it fits in a reply, else a smaller image of it. Of an animation only the first frame is
/// shown.
fn fit(file: Vec<u8>, format: ImageFormat) -> ImageResult<Picture> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(&file), format);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    if !(1..=MAX_PIXELS).contains(&(u64::from(width) * u64::from(height))) {
        return Err(ImageError::Limits(LimitError::from_kind(LimitErrorKind::DimensionError)));
    }
    limits.reserve(decoder.total_bytes())?;
    decoder.set_limits(limits)?;
    // The metadata of a photograph makes viewers rotate it; the new file has no metadata.
    let orientation =
        if format == ImageFormat::Jpeg { decoder.orientation()? } else { Orientation::NoTransforms };
    // Small images are decoded too: a client that keeps a broken one in the conversation sends it to its model, which
    // refuses it, with every message that follows.
    let image = DynamicImage::from_decoder(decoder)?;
    if width.max(height) <= MAX_SIDE && file.len() <= MAX_BYTES && is_whole(&file, format) {
        return Ok(Picture { format, file });
    }
    drop(file);
    let mut image = eight_bits(shrink(image, MAX_SIDE));
    image.apply_orientation(orientation);
    encode(image)
}

/// Whether a file that could be decoded is complete. The decoder accepts truncated JPEG.
fn is_whole(file: &[u8], format: ImageFormat) -> bool {
    const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];

    format != ImageFormat::Jpeg || file.ends_with(&END_OF_IMAGE)
}

/// Scales down to `side`, or leaves a small image as it is.
fn shrink(mut image: DynamicImage, side: u32) -> DynamicImage {
    let longest = image.width().max(image.height());
    if longest <= side {
        return image;
    }
    // The good filter needs 16 bytes for each pixel of its intermediate result, which is as wide as the
    // image. A much larger image is divided by a whole number first, to about 1.5 times `side`.
    let divisor = longest * 2 / (side * 3);
    if divisor > 1 {
        image = image.thumbnail_exact((image.width() / divisor).max(1), (image.height() / divisor).max(1));
    }
    image.resize(side, side, FilterType::Lanczos3)
}

fn eight_bits(image: DynamicImage) -> DynamicImage {
    if image.color().has_alpha() { image.into_rgba8().into() } else { image.into_rgb8().into() }
}

/// Encodes as PNG, which keeps text and lines sharp, else as JPEG, else as a smaller JPEG.
fn encode(image: DynamicImage) -> ImageResult<Picture> {
    let mut file = Vec::new();
    image.write_with_encoder(PngEncoder::new_with_quality(
        &mut file,
        CompressionType::Default,
        RowFilter::Adaptive,
    ))?;
    if file.len() <= MAX_BYTES {
        return Ok(Picture { format: ImageFormat::Png, file });
    }
    let mut image = DynamicImage::from(on_white(image));
    for side in JPEG_SIDES {
        image = shrink(image, side);
        for quality in JPEG_QUALITIES {
            file.clear();
            image.write_with_encoder(JpegEncoder::new_with_quality(&mut file, quality))?;
            if file.len() <= MAX_BYTES {
                return Ok(Picture { format: ImageFormat::Jpeg, file });
            }
        }
    }
    Err(ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory)))
}

/// JPEG has no transparency; the background of an image is usually white.
fn on_white(image: DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.into_rgb8();
    }
    let image = image.into_rgba8();
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [red, green, blue, alpha] = image.get_pixel(x, y).0.map(u16::from);
        let mixed = |channel: u16| ((channel * alpha + 255 * (255 - alpha)) / 255) as u8;
        image::Rgb([mixed(red), mixed(green), mixed(blue)])
    })
}

#[cfg(test)]
mod tests {
    use image::codecs::gif::GifEncoder;
    use image::{Frame, GenericImageView as _, ImageEncoder as _, Rgb, Rgba, RgbaImage};

    use super::*;

    fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        image.into().write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    fn plain(width: u32, height: u32) -> RgbImage {
        RgbImage::from_pixel(width, height, Rgb([200, 30, 30]))
    }

    /// An image that no encoder can compress.
    fn noise(width: u32, height: u32) -> RgbImage {
        let mut state = 1_u64;
        RgbImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [red, green, blue, ..] = state.to_be_bytes();
            Rgb([red, green, blue])
        })
    }

    fn animated_gif(side: u32) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = GifEncoder::new(&mut file);
        for colour in [[255, 0, 0, 255], [0, 0, 255, 255]] {
            encoder.encode_frame(Frame::new(RgbaImage::from_pixel(side, side, Rgba(colour)))).unwrap();
        }
        drop(encoder);
        file
    }

    /// The mime types and files of what is shown.
    fn shown_of(files: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        let content = inline(files.iter().map(|file| file.to_vec()));
        let content = content.iter().map(|block| {
            let block = serde_json::to_value(block).unwrap();
            assert_eq!(block["type"], "image");
            let file = BASE64.decode(block["data"].as_str().unwrap()).unwrap();
            assert!(file.len() <= MAX_BYTES, "{} bytes", file.len());
            (block["mimeType"].as_str().unwrap().to_owned(), file)
        });
        content.collect()
    }

    /// `file` is shown as an image of this type and size.
    #[track_caller]
    fn shows(file: &[u8], mime_type: &str, size: (u32, u32)) -> DynamicImage {
        let shown = shown_of(&[file]);
        assert_eq!(shown.len(), 1, "it is not shown");
        assert_eq!(shown[0].0, mime_type);
        let image = image::load_from_memory(&shown[0].1).unwrap();
        assert_eq!(image.dimensions(), size);
        image
    }

    #[track_caller]
    fn shows_unchanged(file: &[u8], mime_type: &str) {
        assert!(shown_of(&[file]) == [(mime_type.to_owned(), file.to_vec())], "{mime_type} is changed");
    }

    #[track_caller]
    fn shows_nothing(file: &[u8]) {
        let shown = shown_of(&[file]);
        assert!(shown.is_empty(), "{}", shown[0].0);
    }

    #[test]
    fn small_images_are_shown_byte_for_byte_as_what_they_are() {
        for (format, mime_type) in [
            (ImageFormat::Png, "image/png"),
            (ImageFormat::Jpeg, "image/jpeg"),
            (ImageFormat::Gif, "image/gif"),
            (ImageFormat::WebP, "image/webp"),
        ] {
            shows_unchanged(&encoded(plain(60, 40), format), mime_type);
        }
        shows_unchanged(&encoded(plain(MAX_SIDE, 1), ImageFormat::Png), "image/png");
        shows_unchanged(&animated_gif(30), "image/gif");
    }

    #[test]
    fn large_images_are_scaled_down() {
        let wide = encoded(plain(4000, 100), ImageFormat::Png);
        let image = shows(&wide, "image/png", (1568, 39));
        assert_eq!(image.get_pixel(700, 20), Rgba([200, 30, 30, 255]));
        shows(&encoded(plain(MAX_SIDE + 1, 1), ImageFormat::WebP), "image/png", (1568, 1));
        shows(&encoded(plain(3, 20_000), ImageFormat::Jpeg), "image/png", (1, 1568));
        let deep = image::ImageBuffer::<image::LumaA<u16>, _>::new(2000, 10);
        shows(&encoded(deep, ImageFormat::Png), "image/png", (1568, 8));
    }

    #[test]
    fn what_is_large_as_png_becomes_jpeg() {
        // Few pixels, many bytes.
        shows(&encoded(noise(700, 700), ImageFormat::Png), "image/jpeg", (700, 700));
        shows(&encoded(noise(2400, 800), ImageFormat::Png), "image/jpeg", (1568, 523));
    }

    #[test]
    fn what_is_large_as_jpeg_becomes_smaller() {
        shows(&encoded(noise(3000, 3000), ImageFormat::Png), "image/jpeg", (1108, 1108));
    }

    #[test]
    fn transparent_becomes_white_in_jpeg() {
        let mut image = DynamicImage::from(noise(900, 900)).into_rgba8();
        for (x, _, pixel) in image.enumerate_pixels_mut() {
            if x < 300 {
                *pixel = Rgba([0, 0, 0, 0]);
            }
        }
        let image = shows(&encoded(image, ImageFormat::Png), "image/jpeg", (900, 900));
        assert_eq!(image.get_pixel(100, 300), Rgba([255, 255, 255, 255]));
    }

    #[test]
    fn a_large_animation_becomes_its_first_frame() {
        let image = shows(&animated_gif(1600), "image/png", (1568, 1568));
        assert_eq!(image.get_pixel(9, 9), Rgba([255, 0, 0, 255]));
    }

    #[test]
    fn a_photograph_stays_upright() {
        // Little-endian TIFF with one entry: orientation (0x112), a short, 6 = turn right.
        let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
        let mut file = Vec::new();
        let mut encoder = JpegEncoder::new(&mut file);
        encoder.set_exif_metadata(exif).unwrap();
        DynamicImage::from(plain(3136, 100)).write_with_encoder(encoder).unwrap();
        shows(&file, "image/png", (50, 1568));
    }

    #[test]
    fn the_first_four_that_can_be_shown_are_shown() {
        let images: Vec<_> = (1..=5).map(|side| encoded(plain(side, side), ImageFormat::Png)).collect();
        let [one, two, three, four, five] = &images[..] else { unreachable!() };
        let sides = |files: &[&[u8]]| -> Vec<u32> {
            let shown = shown_of(files).into_iter();
            shown.map(|(_, file)| image::load_from_memory(&file).unwrap().width()).collect()
        };
        assert_eq!(sides(&[one, two, three, four, five]), [1, 2, 3, 4]);
        assert_eq!(sides(&[b"<svg/>", one, &two[..30], three, four, five]), [1, 3, 4, 5]);
        assert!(sides(&[]).is_empty());
    }

    #[test]
    fn what_is_no_image_or_broken_is_not_shown() {
        shows_nothing(b"");
        shows_nothing(b"garbage");
        shows_nothing(b"\x89PNG\r\n\x1a\n");
        shows_nothing(b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"/>");
        shows_nothing(b"%PDF-1.7\n");
        shows_nothing(b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0");
        for format in [ImageFormat::Png, ImageFormat::Gif, ImageFormat::WebP] {
            let file = encoded(noise(60, 60), format);
            for length in [10, 40, file.len() / 2] {
                shows_nothing(&file[..length]);
            }
        }
        let mut file = encoded(noise(60, 60), ImageFormat::Png);
        file[2000] ^= 0xff;
        shows_nothing(&file);
    }

    #[test]
    fn a_truncated_jpeg_is_not_passed_on_as_it_is() {
        let file = encoded(noise(60, 60), ImageFormat::Jpeg);
        shows_nothing(&file[..40]);
        shows(&file[..file.len() / 2], "image/png", (60, 60));
    }

    #[test]
    fn a_bomb_is_not_decoded() {
        let mut file = encoded(plain(1, 1), ImageFormat::Png);
        file[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
        let checksum = crc32(&file[12..29]);
        file[29..33].copy_from_slice(&checksum.to_be_bytes());
        let error = fit(file, ImageFormat::Png).map(drop).unwrap_err();
        assert!(matches!(error, ImageError::Limits(_)), "{error}");
        shows_nothing(b"GIF89a\x60\xea\x60\xea\0\0\0");
        shows_nothing(b"GIF89a\0\0\0\0\0\0\0");
    }

    /// The checksum of PNG's chunks.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |checksum: u32, &byte| {
            (0..8).fold(checksum ^ u32::from(byte), |rest, _| (rest >> 1) ^ (0xedb8_8320 * (rest & 1)))
        })
    }

    #[tokio::test]
    async fn a_failure_leaves_the_reply_without_images() {
        let files = std::iter::from_fn(|| -> Option<Vec<u8>> { panic!("on purpose") });
        assert!(shown(files).await.is_empty());
        assert_eq!(shown([encoded(plain(1, 1), ImageFormat::Png)]).await.len(), 1);
    }
}
