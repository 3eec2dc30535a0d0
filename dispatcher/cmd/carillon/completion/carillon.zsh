#compdef carillon
_carillon_words() {
  case "$1" in
@cases@
  esac
}
_carillon() {
  local command="" word
  for word in "${(@)words[2,CURRENT-1]}"; do
    case " $(_carillon_words "$command") " in
    *" $word "*) [[ $word == -* ]] || command="${command:+$command }$word" ;;
    esac
  done
  compadd -- ${=$(_carillon_words "$command")}
  _files
}
if [ "$funcstack[1]" = "_carillon" ]; then _carillon "$@"; else compdef _carillon carillon; fi
