"""Operations on objects as the API calls them: routed, joined, bounded by ownership."""
